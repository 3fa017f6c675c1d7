"""Reads and writes of rollups in PostgreSQL, with their SQL."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import psycopg
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model
from psycopg import sql
from psycopg.types.json import Jsonb

from pulljobs.lake.models import ErrorFingerprint, HotKey, NodeCost, Rollup
from pulljobs.lake.models.rollups import MEASURES, QUANTILES, Period
from pulljobs.lake.rollups.counts import (
    ADDED,
    Cost,
    Counts,
    Error,
    Key,
    Rows,
    measured,
)
from pulljobs.models import Consumer

BATCH: Final = 200
"""Number of rollups that are read or written at once."""
UNIQUE: Final = ("period", "starts_at", "consumer_id")
FIELDS: Final = {
    field.attname: field for field in Rollup._meta.concrete_fields if not field.primary_key
}
UPSERT: Final = sql.SQL("""
INSERT INTO {table} ({columns})
SELECT * FROM unnest({arrays})
ON CONFLICT ({unique}) DO UPDATE SET ({updated}) = ROW ({new})
RETURNING starts_at, consumer_id, id
""")


def load(
    using: str, period: Period, since: datetime, until: datetime, without: Collection[datetime]
) -> Rows:
    """Return the counts of rollups that start from `since` to before `until`.

    Rollups that start at a time in `without` are left out.
    """
    rollups = Rollup.objects.using(using).filter(
        period=period, starts_at__gte=since, starts_at__lt=until
    )
    rollups = rollups.exclude(starts_at__in=without)
    related = rollups.prefetch_related("errors", "nodes").order_by("pk")
    return {
        Key(row.consumer_id, row.starts_at): _counts(row)
        for row in related.iterator(chunk_size=BATCH)
    }


def save(using: str, period: Period, rows: Mapping[Key, Counts]) -> None:
    """Insert the rollups, or replace those of the same period and consumer.

    It joins the caller's transaction.
    """
    channels = dict(Consumer.objects.using(using).values_list("pk", "channel_id"))
    items = sorted(rows.items())
    for start in range(0, len(items), BATCH):
        batch = dict(items[start : start + BATCH])
        made = [_row(period, key, counts, channels) for key, counts in batch.items()]
        ids = _upsert(using, made)
        _save_parts(using, [(ids[key], counts) for key, counts in batch.items()])


def _row(period: Period, key: Key, counts: Counts, channels: Mapping[int, int]) -> dict[str, Any]:
    slowest_seconds, slowest_job = counts.slowest or (None, None)
    row = {
        "period": period.value,
        "starts_at": key.starts_at,
        "consumer_id": key.consumer_id,
        "channel_id": channels.get(key.consumer_id),
        "dead_by_reason": Jsonb(dict(sorted(counts.reasons.items()))),
        "first_settled_at": counts.first_settled_at,
        "last_settled_at": counts.last_settled_at,
        "slowest_seconds": slowest_seconds,
        "slowest_job": slowest_job,
        "keys_sketch": counts.sketches.keys,
        **{name: getattr(counts, name) for name in ADDED},
    }
    for measure, sketch in measured(counts.sketches):
        values = counts.sketches.quantiles.get(measure) or (None,) * len(QUANTILES)
        row[f"{measure}_sketch"] = sketch
        row |= {f"{measure}_p{at}": value for at, value in zip(QUANTILES, values, strict=True)}
    return row


def _upsert(using: str, rows: Sequence[Mapping[str, Any]]) -> dict[Key, int]:
    """Insert rollups, or replace those of the same period and consumer, and return their ids.

    The statement is sent in binary, in which sketches have half of the length.
    """
    connection = connections[using]
    arrays = [[row[name] for row in rows] for name in FIELDS]
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(_upsert_statement(connection), arrays)
        return {Key(consumer, starts_at): pk for starts_at, consumer, pk in cursor}


def _upsert_statement(connection: BaseDatabaseWrapper) -> sql.Composed:
    types = [field.db_type(connection) for field in FIELDS.values()]
    updated = [name for name in FIELDS if name not in UNIQUE]
    return UPSERT.format(
        table=sql.Identifier(Rollup._meta.db_table),
        columns=_join(FIELDS),
        arrays=sql.SQL(", ".join(f"%b::{kind}[]" for kind in types)),
        unique=_join(UNIQUE),
        updated=_join(updated),
        new=sql.SQL(", ").join([sql.Identifier("excluded", name) for name in updated]),
    )


def _join(names: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _save_parts(using: str, counted: Sequence[tuple[int, Counts]]) -> None:
    for model, (columns, list_parts) in PARTS.items():
        rollups = [pk for pk, _counts in counted]
        model._default_manager.using(using).filter(rollup__in=rollups).delete()
        rows = ((pk, *part) for pk, counts in counted for part in list_parts(counts))
        _copy(using, model._meta.db_table, ("rollup_id", *columns), rows)


def _copy(using: str, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Insert rows by COPY: an INSERT of thousands of rows takes longer to build than to run."""
    text = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), _join(columns))
    with connections[using].cursor() as cursor, cursor.copy(text) as copy:
        for row in rows:
            copy.write_row(row)


def _hot_keys(counts: Counts) -> Iterator[Sequence[Any]]:
    for rank, (key, jobs) in enumerate(counts.sketches.hot_keys, start=1):
        yield rank, key, jobs


def _errors(counts: Counts) -> Iterator[Sequence[Any]]:
    for (fingerprint, reason), error in counts.worst_errors():
        yield fingerprint, reason, error.jobs, error.sample, error.sample_job


def _nodes(counts: Counts) -> Iterator[Sequence[Any]]:
    for node, cost in counts.nodes.items():
        yield node or None, cost.jobs, cost.dead, cost.run_seconds


PARTS: Final[
    Mapping[type[Model], tuple[Sequence[str], Callable[[Counts], Iterator[Sequence[Any]]]]]
] = {
    HotKey: (("rank", "key", "jobs"), _hot_keys),
    ErrorFingerprint: (("fingerprint", "reason", "jobs", "sample", "sample_job"), _errors),
    NodeCost: (("node_id", "jobs", "dead", "run_seconds"), _nodes),
}
"""Tables of hot keys, errors and node costs: columns, and a function that lists the rows."""


def _counts(row: Rollup) -> Counts:
    counts = Counts(
        reasons=Counter(row.dead_by_reason),
        first_settled_at=row.first_settled_at,
        last_settled_at=row.last_settled_at,
        **{name: getattr(row, name) for name in ADDED},
    )
    if row.slowest_seconds is not None and row.slowest_job is not None:
        counts.slowest = (row.slowest_seconds, row.slowest_job)
    counts.errors = {
        (error.fingerprint, error.reason): Error(error.jobs, error.sample, error.sample_job)
        for error in row.errors.all()
    }
    counts.nodes = {
        str(node.node_id) if node.node_id else None: Cost(node.jobs, node.dead, node.run_seconds)
        for node in row.nodes.all()
    }
    for name in (*MEASURES, "keys"):
        sketch = getattr(row, f"{name}_sketch")
        setattr(counts.sketches, name, None if sketch is None else bytes(sketch))
    return counts
