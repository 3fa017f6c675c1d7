"""Selection of settlements, a window at a time, by their ids, which contain their time."""

from typing import Final

from pulljobs.ids import LARGEST_ID
from pulljobs.models import ArchivedJob, Message
from pulljobs.storage.selecting import Row, Selection, chosen
from pulljobs.storage.windows import IdSpan, IdWindow, Run, merged

COLUMNS: Final = ("id", "consumer_id", "state", "reason", "message_id")
SCANNED_FOR_A_KEY: Final = 2_000
"""Settlements read for a key, which is looked up with the messages."""


def window(using: str, selection: Selection, span: IdSpan) -> IdWindow:
    """Return the next selected settlements. The ids of the selection are those of settlements."""
    if selection.among is not None:
        return merged([chosen(selection.among, span)], span)
    if selection.key is not None:
        span = span.narrow(min(span.scanned, SCANNED_FOR_A_KEY))
    first = span._replace(beyond=min(span.beyond, min(selection.last, LARGEST_ID - 1) + 1))
    near = merged([_run(using, selection, first.narrow(first.wanted + 1))], span)
    if near.beyond is None or len(near.ids) >= span.wanted:
        return near
    return merged([_run(using, selection, first)], span)


def _run(using: str, selection: Selection, span: IdSpan) -> Run:
    rows = ArchivedJob.objects.using(using).filter(**span.lookup).order_by(span.order)
    if selection.first:
        rows = rows.filter(id__gte=selection.first)
    seen: list[Row] = list(rows.values(*COLUMNS)[: span.scanned])
    fitting = [row for row in seen if selection._replace(key=None).fits(row)]
    if selection.key is not None:
        named = _named(using, selection.key, [row["message_id"] for row in fitting])
        fitting = [row for row in fitting if row["message_id"] in named]
    reached = seen[-1]["id"] if len(seen) == span.scanned else None
    return Run([row["id"] for row in fitting], reached)


def _named(using: str, key: str, message_ids: list[int]) -> set[int]:
    """Return the ids of those messages that have the key."""
    if not message_ids:
        return set()
    # The bounds keep it to the partitions of those days.
    bounds = {"pk__gte": min(message_ids), "pk__lte": max(message_ids)}
    rows = Message.objects.using(using).filter(pk__in=message_ids, key=key, **bounds)
    return set(rows.values_list("pk", flat=True))
