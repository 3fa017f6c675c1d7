"""History of one job: its message, claims, settlements and operators' actions, in order."""

from collections.abc import Iterator
from datetime import datetime
from operator import itemgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.diagnosis import times
from pulljobs.models import ArchivedJob, Attempt, Job, Lease, Message, Node
from pulljobs.states import State
from pulljobs.storage import audit

SHOWN: Final = 20
"""Largest number of rows of each source, the newest ones."""
ENDED: Final = {
    "retry": gettext_lazy("failed, will be retried"),
    "expire": gettext_lazy("the lease expired"),
    "release": gettext_lazy("released, not charged"),
    "suspend": gettext_lazy("suspended, not charged"),
    "kill": gettext_lazy("killed"),
}


class TimelineEntry(NamedTuple):
    """Entry of the history of a job."""

    at: datetime
    kind: str
    """CSS class of the entry."""
    what: Any
    detail: str = ""
    error: str | None = None
    record: tuple[str, int] | None = None
    """Model name and primary key of the row with details."""

    @property
    def clock(self) -> str:
        """Date and time of the entry in Django's time zone, to the millisecond."""
        return f"{localtime(self.at):%Y-%m-%d %H:%M:%S.%f}"[:-3]

    @property
    def is_traceback(self) -> bool:
        """True if the error has several lines."""
        return "\n" in (self.error or "")

    @property
    def error_summary(self) -> str:
        """First line of the error."""
        return (self.error or "").partition("\n")[0]


def read_timeline(job_id: int, message_id: int) -> list[TimelineEntry]:
    """Return the history of a job, oldest first, from at most SHOWN rows of each table."""
    using = settings().DATABASE
    attempts = list(Attempt.objects.using(using).filter(job_id=job_id).order_by("-id")[:SHOWN])
    settled = _settled(using, job_id)
    held = Lease.objects.using(using).filter(lease_token__in=_held(using, job_id))
    leases = list(held.filter(job_ids__contains=[job_id]))
    claims: list[Any] = [*attempts, *settled, *leases]
    nodes = _nodes(using, [claim.node_id for claim in claims if claim.node_id])
    entries = [
        *_created(using, job_id, message_id),
        *(entry for lease in leases for entry in _of_lease(lease, nodes)),
        *_of_attempts(attempts, settled, nodes),
        *_of_settlements(settled, attempts, nodes),
        *_of_operators(using, job_id),
    ]
    return sorted(entries, key=lambda entry: entry.at)


def read_last_run(job_id: int) -> str | None:
    """Return start and run time of a job's newest run as text, or None if no run was reported."""
    runs = [
        (run["started_at"], run["run_seconds"])
        for model in (Attempt, ArchivedJob)
        for run in model.objects.using(settings().DATABASE)
        .filter(job_id=job_id, started_at__isnull=False)
        .order_by("-started_at")
        .values("started_at", "run_seconds")[:1]
    ]
    if not runs:
        return None
    started_at, seconds = max(runs, key=itemgetter(0))
    start = f"{localtime(started_at):%Y-%m-%d %H:%M:%S}"
    if seconds is None:
        return start
    return _("%(start)s, for %(seconds)s") % {
        "start": start,
        "seconds": times.format_run_time(seconds),
    }


def _settled(using: str, job_id: int) -> list[ArchivedJob]:
    """Return the newest SHOWN settlements of a job, newest first.

    PostgreSQL sorts all settlements of the job, because no index has this order.
    """
    rows = ArchivedJob.objects.using(using).filter(job_id=job_id)
    return list(rows.defer("result").order_by("-settled_at")[:SHOWN])


def _held(using: str, job_id: int) -> list[UUID]:
    rows = Job.objects.using(using).filter(id=job_id, lease_token__isnull=False)
    tokens = rows.values_list("lease_token", flat=True)
    return [token for token in tokens if token is not None]


def _nodes(using: str, node_ids: list[UUID]) -> dict[UUID, str]:
    return dict(Node.objects.using(using).filter(pk__in=node_ids).values_list("pk", "name"))


def _created(using: str, job_id: int, message_id: int) -> Iterator[TimelineEntry]:
    rows = Message.objects.using(using).filter(pk=message_id)
    columns = ("published_at", "channel__name", "producer__name")
    for message in rows.select_related("channel", "producer").only(*columns):
        by = _(" by %s") % message.producer.name if message.producer else ""
        detail = _("on %(channel)s%(by)s") % {"channel": message.channel.name, "by": by}
        yield TimelineEntry(message.published_at, "published", _("published"), detail)
        return
    yield TimelineEntry(
        ids.time_of(job_id), "published", _("created"), _("its message is no longer stored")
    )


def _claimed(row: Any, nodes: dict[UUID, str]) -> TimelineEntry:
    holder = nodes.get(row.node_id, _("a client"))
    via = getattr(row, "via", "")
    detail = _("by %s") % holder
    if via:
        detail = _("by %(holder)s, %(via)s") % {"holder": holder, "via": via}
    return TimelineEntry(row.claimed_at, "claimed", _("claimed"), detail)


def _started(row: Attempt | ArchivedJob) -> Iterator[TimelineEntry]:
    """Yield the entry for the start of the handler, if the holder has reported it."""
    if row.started_at is not None:
        seconds = row.run_seconds
        detail = "" if seconds is None else _("ran for %s") % times.format_run_time(seconds)
        yield TimelineEntry(row.started_at, "started", _("started"), detail)


def _renewed(row: Lease | Attempt, at: datetime) -> Iterator[TimelineEntry]:
    if row.renewals:
        until = f"{localtime(row.leased_until):%H:%M:%S}"
        detail = _("%(count)d times, last until %(until)s") % {
            "count": row.renewals,
            "until": until,
        }
        yield TimelineEntry(at, "renewed", _("renewed"), detail)


def _of_lease(lease: Lease, nodes: dict[UUID, str]) -> Iterator[TimelineEntry]:
    yield _claimed(lease, nodes)
    yield from _renewed(lease, min(lease.leased_until, datetime.now(lease.claimed_at.tzinfo)))


def _of_attempts(
    attempts: list[Attempt], settled: list[ArchivedJob], nodes: dict[UUID, str]
) -> Iterator[TimelineEntry]:
    for attempt in attempts:
        yield _claimed(attempt, nodes)
        yield from _started(attempt)
        yield from _renewed(attempt, attempt.ended_at)
        if attempt.event in ENDED:
            yield TimelineEntry(
                attempt.ended_at, attempt.event, ENDED[attempt.event], error=attempt.error
            )


def _of_settlements(
    settled: list[ArchivedJob], attempts: list[Attempt], nodes: dict[UUID, str]
) -> Iterator[TimelineEntry]:
    known = {attempt.lease_token for attempt in attempts}
    for row in settled:
        if row.lease_token and row.claimed_at and row.lease_token not in known:
            yield _claimed(row, nodes)
            yield from _started(row)
        is_dead = row.state == State.DEAD
        what = _("dead: %s") % row.get_reason_display() if is_dead else _("delivered")
        counts = _("retries %(retries)d, deliveries %(deliveries)d") % {
            "retries": row.retry_count,
            "deliveries": row.deliveries,
        }
        record = ("archivedjob", row.pk)
        yield TimelineEntry(row.settled_at, row.state.lower(), what, counts, row.error, record)


def _of_operators(using: str, job_id: int) -> Iterator[TimelineEntry]:
    for batch in audit.batches_of(using, job_id):
        entry = batch.entry
        detail, record = _("by %s") % entry.by, ("auditentry", entry.pk)
        yield TimelineEntry(
            batch.at, "operator", entry.get_act_display().lower(), detail, None, record
        )
