"""What happened to one job, in order: from its message, its claims, its settlements, its audit."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.models import ArchivedJob, Attempt, Job, Lease, Message, Node
from pulljobs.states import State
from pulljobs.storage import audit

SHOWN: Final = 20
"""Of each source, the last."""
ENDED: Final = {
    "retry": gettext_lazy("failed, to be tried again"),
    "expire": gettext_lazy("the lease ended without a word"),
    "release": gettext_lazy("given back unharmed"),
    "kill": gettext_lazy("taken away"),
}


class Moment(NamedTuple):
    at: datetime
    kind: str
    """For its look."""
    what: Any
    detail: str = ""
    error: str | None = None
    record: tuple[str, int] | None = None
    """The model's name and the key of the row that tells more."""

    @property
    def clock(self) -> str:
        return f"{localtime(self.at):%Y-%m-%d %H:%M:%S.%f}"[:-3]

    @property
    def is_traceback(self) -> bool:
        return "\n" in (self.error or "")

    @property
    def told(self) -> str:
        return (self.error or "").partition("\n")[0]


def of(job_id: int, message_id: int) -> list[Moment]:
    """The first first."""
    using = settings().DATABASE
    attempts = list(Attempt.objects.using(using).filter(job_id=job_id).order_by("-id")[:SHOWN])
    settled = _settled(using, job_id)
    held = Lease.objects.using(using).filter(lease_token__in=_held(using, job_id))
    leases = list(held.filter(job_ids__contains=[job_id]))
    claims: list[Any] = [*attempts, *settled, *leases]
    nodes = _nodes(using, [one.node_id for one in claims if one.node_id])
    moments = [
        *_made(using, job_id, message_id),
        *(moment for lease in leases for moment in _of_lease(lease, nodes)),
        *_of_attempts(attempts, settled, nodes),
        *_of_settlements(settled, attempts, nodes),
        *_of_operators(using, job_id),
    ]
    return sorted(moments, key=lambda one: one.at)


def _settled(using: str, job_id: int) -> list[ArchivedJob]:
    """Ordered by no index, so that they are found by the job's."""
    rows = ArchivedJob.objects.using(using).filter(job_id=job_id)
    return list(rows.defer("result").order_by("-settled_at")[:SHOWN])


def _held(using: str, job_id: int) -> list[UUID]:
    rows = Job.objects.using(using).filter(id=job_id, lease_token__isnull=False)
    return [lease for lease in rows.values_list("lease_token", flat=True) if lease is not None]


def _nodes(using: str, node_ids: list[UUID]) -> dict[UUID, str]:
    return dict(Node.objects.using(using).filter(pk__in=node_ids).values_list("pk", "name"))


def _made(using: str, job_id: int, message_id: int) -> Iterator[Moment]:
    rows = Message.objects.using(using).filter(pk=message_id)
    found = rows.select_related("channel", "producer").only(
        "published_at", "channel__name", "producer__name"
    )
    for message in found:
        by = _(" by %s") % message.producer.name if message.producer else ""
        detail = _("on %(channel)s%(by)s") % {"channel": message.channel.name, "by": by}
        yield Moment(message.published_at, "published", _("published"), detail)
        return
    yield Moment(ids.time_of(job_id), "published", _("made"), _("its message is not kept any more"))


def _claimed(row: Any, nodes: dict[UUID, str]) -> Moment:
    who = nodes.get(row.node_id, _("somebody"))
    via = getattr(row, "via", "")
    detail = _("by %(who)s, %(via)s") % {"who": who, "via": via} if via else _("by %s") % who
    return Moment(row.claimed_at, "claimed", _("claimed"), detail)


def _renewed(row: Lease | Attempt, at: datetime) -> Iterator[Moment]:
    if row.renewals:
        until = f"{localtime(row.leased_until):%H:%M:%S}"
        detail = _("%(count)d times, at last until %(until)s") % {
            "count": row.renewals,
            "until": until,
        }
        yield Moment(at, "renewed", _("renewed"), detail)


def _of_lease(lease: Lease, nodes: dict[UUID, str]) -> Iterator[Moment]:
    yield _claimed(lease, nodes)
    yield from _renewed(lease, min(lease.leased_until, datetime.now(lease.claimed_at.tzinfo)))


def _of_attempts(
    attempts: list[Attempt], settled: list[ArchivedJob], nodes: dict[UUID, str]
) -> Iterator[Moment]:
    for attempt in attempts:
        yield _claimed(attempt, nodes)
        yield from _renewed(attempt, attempt.ended_at)
        if attempt.event in ENDED:
            yield Moment(attempt.ended_at, attempt.event, ENDED[attempt.event], error=attempt.error)


def _of_settlements(
    settled: list[ArchivedJob], attempts: list[Attempt], nodes: dict[UUID, str]
) -> Iterator[Moment]:
    told = {attempt.lease_token for attempt in attempts}
    for row in settled:
        if row.lease_token and row.claimed_at and row.lease_token not in told:
            yield _claimed(row, nodes)
        is_dead = row.state == State.DEAD
        what = _("dead: %s") % row.get_reason_display() if is_dead else _("delivered")
        counts = _("retries %(retries)d, deliveries %(deliveries)d") % {
            "retries": row.retry_count,
            "deliveries": row.deliveries,
        }
        record = ("archivedjob", row.pk)
        yield Moment(row.settled_at, row.state.lower(), what, counts, row.error, record)


def _of_operators(using: str, job_id: int) -> Iterator[Moment]:
    for batch in audit.batches_of(using, job_id):
        entry = batch.entry
        detail, record = _("by %s") % entry.by, ("auditentry", entry.pk)
        yield Moment(batch.at, "operator", entry.get_act_display().lower(), detail, None, record)
