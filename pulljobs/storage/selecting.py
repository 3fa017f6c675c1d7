"""Selection of live jobs for lists and for actions on many jobs.

A window is the next few ids of a selection. Each is read from the index that fits the conditions.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef, QuerySet
from django.db.models.functions import JSONObject

from pulljobs.ids import LARGEST_ID
from pulljobs.models import Consumer, Job, Lease
from pulljobs.states import LIVE, State
from pulljobs.storage.windows import SCANNED, IdRun, IdSpan, IdWindow, merged

COLUMNS: Final = ("id", "consumer_id", "state", "reason", "key")
FEW: Final = 1_000
ROWS: Final = 60_000
"""Number of ids that are read for all consumers together, but FEW of each at least."""
ALL_STATES: Final = tuple(sorted(LIVE))
Row = Mapping[str, Any]


class Selection(NamedTuple):
    """Conditions on jobs. A job is selected if all of them hold."""

    states: tuple[str, ...] = ALL_STATES
    consumer_ids: tuple[int, ...] | None = None
    """Ids of consumers, or None for all."""
    reason: str | None = None
    key: str | None = None
    """Key as the consumer uses it: see `Job.key`."""
    first: int = 0
    last: int = LARGEST_ID
    """First and last id. Ids contain the time, so these bound the age."""
    among: tuple[int, ...] | None = None
    """Only these ids. The other conditions do not count then, not even that the jobs are live."""

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> "Selection":
        """Return a selection from JSON in an audit entry: the fields of this class by name."""
        fields: dict[str, Any] = dict(stored)
        lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
        return cls(**fields | lists)

    def fits(self, row: Row) -> bool:
        """Return True if the row meets the conditions on those columns that were read."""
        return (
            ("state" not in row or row["state"] in self.states)
            and (
                self.consumer_ids is None
                or "consumer_id" not in row
                or row["consumer_id"] in self.consumer_ids
            )
            and (self.reason is None or row.get("reason", self.reason) == self.reason)
            and (self.key is None or row.get("key", self.key) == self.key)
            and self.first <= row["id"] <= self.last
        )


def window(using: str, selection: Selection, span: IdSpan) -> IdWindow:
    """Return the next ids of selected jobs from the start of the span on, in its direction.

    If few ids are wanted, few rows are read at first, and more only if that yields too few.
    """
    if selection.among is not None:
        return merged([chosen(selection.among, span)], span)
    span = within(selection, span)
    if span.wanted < FEW:
        near = merged(list(_runs(using, selection, span.narrow(span.wanted + 1))), span)
        if near.beyond is None or len(near.ids) == span.wanted:
            return near
    return merged(list(_runs(using, selection, span)), span)


def chosen(ids: Iterable[int], span: IdSpan) -> IdRun:
    """Return the given ids that are inside the span. No index has to be read for them."""
    return IdRun([id for id in ids if span.leads_to(id)], None)


def within(selection: Selection, span: IdSpan) -> IdSpan:
    """Return the part of the span from the first id, in its direction, that `selection` allows."""
    if span.upwards:
        return span._replace(beyond=max(span.beyond, selection.first - 1))
    return span._replace(beyond=min(span.beyond, min(selection.last, LARGEST_ID - 1) + 1))


def _runs(using: str, selection: Selection, span: IdSpan) -> Iterator[IdRun]:
    """Yield the ids of selected jobs from each index that has to be read for them."""
    states = set(selection.states)
    if selection.reason is not None:
        states &= {State.DEAD.value}
    live = states - {State.DEAD.value}
    if live and selection.key is None and live != {State.INFLIGHT}:
        yield _run(_rows(using).order_by(span.order), selection, span)
        return
    if State.DEAD in states:
        yield from _by_consumer(using, selection, span, {"reason__isnull": False})
    if live and selection.key is not None:
        own = {"reason__isnull": True, "key": selection.key}
        yield from _by_consumer(using, selection, span, own)
    elif live:
        yield _held(using, selection, span)


def _run(rows: QuerySet[Any, Row], selection: Selection, span: IdSpan) -> IdRun:
    seen = rows.filter(**span.lookup)[: span.scanned]
    return _make_run([(row["id"], selection.fits(row)) for row in seen], selection, span)


def _make_run(seen: list[tuple[int, bool]], selection: Selection, span: IdSpan) -> IdRun:
    """Return the selected ids among the rows that were read from an index.

    `seen` has the id of each row, in order, and True if its columns meet the conditions. Nothing
    is left to read if fewer rows came than the span allows, or the last is past the selected ids.
    """
    first, last = selection.first, selection.last
    ids = [id for id, fits in seen if fits and first <= id <= last]
    if len(seen) < span.scanned:
        return IdRun(ids, None)
    end = seen[-1][0]
    is_over = end > last if span.upwards else end < first
    return IdRun(ids, None if is_over else end)


def _by_consumer(
    using: str, selection: Selection, span: IdSpan, own: Mapping[str, Any]
) -> Iterator[IdRun]:
    """Yield the selected ids of each consumer, from an index that has its jobs by id.

    `own` are conditions on the jobs, by which PostgreSQL chooses this index.
    """
    consumers = Consumer.objects.using(using)
    if selection.consumer_ids is not None:
        consumers = consumers.filter(pk__in=selection.consumer_ids)
    columns = [name for name in ("reason", "key") if getattr(selection, name) is not None]
    if "key" in own:
        columns = ["state"]
    # The more consumers and columns, the fewer rows of each.
    most = SCANNED if columns else ROWS
    share = span.narrow(min(span.scanned, max(FEW, most // max(1, consumers.count()))))
    mine = Job.objects.filter(consumer_id=OuterRef("pk"), **own, **span.lookup)
    jobs = mine.order_by(span.order)[: share.scanned]
    if not columns:
        for ids in consumers.values_list(ArraySubquery(jobs.values("id")), flat=True):
            yield _make_run([(id, True) for id in ids], selection, share)
        return
    named = JSONObject(id="id", **{name: name for name in columns})
    for rows in consumers.values_list(ArraySubquery(jobs.values(named=named)), flat=True):
        yield _make_run([(row["id"], selection.fits(row)) for row in rows], selection, share)


def _held(using: str, selection: Selection, span: IdSpan) -> IdRun:
    """Return the ids of selected jobs in flight, which are read from the lists of the leases."""
    leases = Lease.objects.using(using)
    if selection.consumer_ids is not None:
        leases = leases.filter(consumer_id__in=selection.consumer_ids)
    held = {id for ids in leases.values_list("job_ids", flat=True) for id in ids}
    first = sorted(filter(span.leads_to, held), reverse=not span.upwards)[: span.scanned]
    rows = list(_rows(using).filter(id__in=first))
    ids = [row["id"] for row in rows if selection.fits(row)]
    return IdRun(ids, first[-1] if len(first) == span.scanned else None)


def _rows(using: str) -> QuerySet[Any, Row]:
    rows: QuerySet[Any, Row] = Job.objects.using(using).values(*COLUMNS)
    return rows
