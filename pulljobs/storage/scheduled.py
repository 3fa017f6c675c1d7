"""Rows of scheduled messages, which a loop of the worker publishes (dispatches) at their time."""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from django.db import connections, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from pulljobs.engine.deadlines import WorkDeadline
from pulljobs.models import Channel, ScheduledMessage
from pulljobs.storage.forgetting import forget
from pulljobs.storage.pages import Cut, newest_first
from pulljobs.storage.published import NUL
from pulljobs.storage.sessions import LONGEST_SECONDS
from pulljobs.storage.windows import IdRun, IdSpan, IdWindow, merged

CAP: Final = 10_000


def add(using: str, row: ScheduledMessage) -> None:
    """Insert a scheduled message. Raise IntegrityError if another one of the channel has its id.

    These are client message ids. The insert waits for up to a minute for an open transaction that
    has inserted the same id, then raises OperationalError, in the caller's transaction as well.
    """
    with WorkDeadline(connections[using], LONGEST_SECONDS), transaction.atomic(using=using):
        row.save(using=using, force_insert=True)


def due(using: str, limit: int) -> list[ScheduledMessage]:
    """Lock and return up to `limit` due messages that no other process has locked, oldest first."""
    rows = ScheduledMessage.objects.using(using).filter(dispatched_at=None, dispatch_at__lte=Now())
    locked = rows.select_for_update(skip_locked=True, of=("self",))
    return list(locked.select_related("channel", "producer").order_by("dispatch_at", "pk")[:limit])


def mark_dispatched(using: str, ids: list[int]) -> None:
    _rows(using, ids).update(dispatched_at=Now())


def put_off(using: str, id: int, by: timedelta) -> None:
    """Postpone a scheduled message that could not be published to the time `by` from now."""
    _rows(using, [id]).update(dispatch_at=Now() + by)


def forget_dispatched(using: str, age: timedelta) -> int:
    """Delete a batch of rows that were dispatched longer ago than `age` and return their number."""
    return forget(ScheduledMessage.objects.using(using).filter(dispatched_at__lt=Now() - age))


def find(using: str, channel_id: int, name: str) -> ScheduledMessage | None:
    if NUL in name:
        return None
    rows = ScheduledMessage.objects.using(using).select_related("producer")
    return rows.filter(channel_id=channel_id, client_message_id=name).first()


def page(
    using: str, channel_id: int, cut: Cut, is_published: bool | None = None
) -> list[ScheduledMessage]:
    """Return a page of a channel's scheduled messages, newest first, without payloads and headers.

    With `is_published` they are only those that are published, or only those to come.
    """
    rows = ScheduledMessage.objects.using(using).filter(channel_id=channel_id)
    if is_published is not None:
        rows = rows.filter(dispatched_at__isnull=not is_published)
    return newest_first(rows.only("id", "client_message_id"), cut)


def window(
    using: str,
    span: IdSpan,
    *,
    channel_id: int | None = None,
    is_published: bool | None = None,
    name: str = "",
) -> IdWindow:
    """Return the next ids, newest first, of scheduled messages that meet all given conditions.

    `name` is a client message id.
    """
    rows = ScheduledMessage.objects.using(using).filter(id__lt=span.beyond).order_by("-id")
    if channel_id is not None:
        rows = rows.filter(channel_id=channel_id)
    if name:
        if is_published is not None:
            rows = rows.filter(dispatched_at__isnull=not is_published)
        channels = list(Channel.objects.using(using).values_list("pk", flat=True))
        named = rows.filter(channel_id__in=channels, client_message_id=name.replace(NUL, ""))
        return merged([IdRun(list(named.values_list("id", flat=True)), None)], span)
    near = merged([_run(rows, is_published, span.narrow(span.wanted + 1))], span)
    if near.beyond is None or len(near.ids) >= span.wanted:
        return near
    return merged([_run(rows, is_published, span)], span)


def _run(rows: QuerySet[ScheduledMessage], is_published: bool | None, span: IdSpan) -> IdRun:
    seen = list(rows.values_list("id", "dispatched_at")[: span.scanned])
    ids = [id for id, at in seen if is_published is None or is_published == (at is not None)]
    return IdRun(ids, seen[-1][0] if len(seen) == span.scanned else None)


class Waiting(NamedTuple):
    """Counts of the scheduled messages of one channel. CAP + 1 stands for more than CAP.

    `scheduled` are those that are not published yet, with the `due` ones among them.
    """

    scheduled: int
    due: int
    dispatched: int
    next_at: datetime | None


def waiting(using: str, channel_id: int) -> Waiting:
    rows = ScheduledMessage.objects.using(using).filter(channel_id=channel_id)
    undone = rows.filter(dispatched_at=None)
    next_at = undone.order_by("dispatch_at").values_list("dispatch_at", flat=True).first()
    return Waiting(
        _capped(undone),
        _capped(undone.filter(dispatch_at__lte=Now())),
        _capped(rows.exclude(dispatched_at=None)),
        next_at,
    )


def _capped(rows: QuerySet[ScheduledMessage]) -> int:
    return rows[: CAP + 1].count()


def _rows(using: str, ids: list[int]) -> QuerySet[ScheduledMessage]:
    return ScheduledMessage.objects.using(using).filter(pk__in=ids)
