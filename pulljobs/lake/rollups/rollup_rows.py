"""Reads and writes of the rows of rollups."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db.models import Model

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
    """Return the rows that begin from `since` to before `until`, except at the times `without`."""
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
    """Insert or replace the rows, in the caller's transaction."""
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
    makers: dict[type[Model], Callable[[int, Counts], Iterator[Model]]] = {
        HotKey: _hot_keys,
        ErrorFingerprint: _errors,
        NodeCost: _nodes,
    }
    for model, make in makers.items():
        rows = model._default_manager.using(using)
        rows.filter(rollup__in=rollups).delete()
        rows.bulk_create(
            [part for pk, counts in zip(rollups, counted, strict=True) for part in make(pk, counts)]
        )


def _hot_keys(rollup: int, counts: Counts) -> Iterator[Model]:
    for rank, (key, jobs) in enumerate(counts.sketches.hot_keys, start=1):
        yield HotKey(rollup_id=rollup, rank=rank, key=key, jobs=jobs)


def _errors(rollup: int, counts: Counts) -> Iterator[Model]:
    for (fingerprint, reason), error in counts.worst_errors():
        yield ErrorFingerprint(
            rollup_id=rollup, fingerprint=fingerprint, reason=reason, **error._asdict()
        )


def _nodes(rollup: int, counts: Counts) -> Iterator[Model]:
    for node, cost in counts.nodes.items():
        yield NodeCost(rollup_id=rollup, node_id=UUID(node) if node else None, **cost._asdict())


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
