"""Reads and writes of rollups in PostgreSQL."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from django.db import connections
from django.db.models import Model
from psycopg import sql

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
UNIQUE: Final = ("period", "starts_at", "consumer")
UPDATED: Final = [
    field.name
    for field in Rollup._meta.concrete_fields
    if not field.primary_key and field.name not in UNIQUE
]


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
        batch = items[start : start + BATCH]
        made = Rollup.objects.using(using).bulk_create(
            [_row(period, key, counts, channels.get(key.consumer_id)) for key, counts in batch],
            update_conflicts=True,
            update_fields=UPDATED,
            unique_fields=UNIQUE,
        )
        _save_parts(using, [row.pk for row in made], [counts for _key, counts in batch])


def _row(period: Period, key: Key, counts: Counts, channel_id: int | None) -> Rollup:
    row = Rollup(
        period=period,
        starts_at=key.starts_at,
        consumer_id=key.consumer_id,
        channel_id=channel_id,
        dead_by_reason=dict(sorted(counts.reasons.items())),
        first_settled_at=counts.first_settled_at,
        last_settled_at=counts.last_settled_at,
        keys_sketch=counts.sketches.keys,
        **{name: getattr(counts, name) for name in ADDED},
    )
    if counts.slowest is not None:
        row.slowest_seconds, row.slowest_job = counts.slowest
    for measure, sketch in measured(counts.sketches):
        setattr(row, f"{measure}_sketch", sketch)
        values = counts.sketches.quantiles.get(measure) or ()
        for quantile, value in zip(QUANTILES, values, strict=bool(values)):
            setattr(row, f"{measure}_p{quantile}", value)
    return row


def _save_parts(using: str, rollups: list[int], counted: list[Counts]) -> None:
    for model, (columns, list_parts) in PARTS.items():
        model._default_manager.using(using).filter(rollup__in=rollups).delete()
        rows = (
            (pk, *part)
            for pk, counts in zip(rollups, counted, strict=True)
            for part in list_parts(counts)
        )
        _copy(using, model._meta.db_table, ("rollup_id", *columns), rows)


def _copy(using: str, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Insert rows by COPY: an INSERT of thousands of rows takes longer to build than to run."""
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    text = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), names)
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
"""Tables of the parts of rollups, with their columns and a function that lists the rows."""


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
