"""How values are shown that several pages show."""

from datetime import datetime
from typing import Any, Final

from django.urls import reverse
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.timezone import localtime

from pulljobs.conf import settings
from pulljobs.models import ArchivedJob, Consumer, Job, Lease, Node

NOTHING: Final = "-"
BRIEF: Final = 80
UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def holder_of(job: Job) -> str:
    leases = Lease.objects.using(settings().DATABASE).filter(lease_token__in=[job.lease_token])
    lease = leases.filter(job_ids__contains=[job.pk]).first()
    if lease is None:
        return NOTHING
    who, until = node_of(lease) or "somebody", moment(lease.leased_until)
    return f"{who}, by {lease.get_via_display()}, until {until}"


def node_of(row: Lease | ArchivedJob) -> Node | None:
    return Node.objects.using(settings().DATABASE).filter(pk__in=[row.node_id]).first()


def preformatted(text: Any) -> SafeString | str:
    """Those who use a keyboard can scroll it."""
    if not text:
        return NOTHING
    return format_html('<pre class="pulljobs" tabindex="0">{}</pre>', text)


def moment(at: datetime | None) -> str:
    """Jobs are about seconds, so seconds are shown."""
    return date_format(localtime(at), "Y-m-d H:i:s") if at else NOTHING


def state_of(job: Job | ArchivedJob) -> str:
    return f"{job.state}, {job.get_reason_display()}" if job.reason else job.state


def badge(job: Job | ArchivedJob) -> SafeString:
    return format_html(
        '<span class="pulljobs-badge pulljobs-{}">{}</span>', job.state.lower(), state_of(job)
    )


def standing_of(job: Job | ArchivedJob) -> SafeString:
    """With the beginning of its error below it."""
    if not job.error:
        return badge(job)
    brief = Truncator(job.error.partition("\n")[0]).chars(BRIEF)
    return format_html('{} <span class="pulljobs-brief">{}</span>', badge(job), brief)


def consumer_link(consumer: Consumer) -> SafeString:
    url = reverse("admin:pulljobs_consumer_change", args=[consumer.pk])
    return format_html('<a href="{}">{} / {}</a>', url, consumer.channel, consumer)


def record_page(record: tuple[str, int] | None) -> str | None:
    """Of a row, by its model's name and its key."""
    return reverse(f"admin:pulljobs_{record[0]}_change", args=record[1:]) if record else None


def duration(seconds: float | None) -> str:
    """In the largest unit of which there are two, such as 90 s or 3 h."""
    if seconds is None:
        return NOTHING
    for size, unit in UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def standing(party: Any) -> SafeString:
    """Of a channel or a consumer: deleted, paused, held back by who claims, or none of it."""
    now = party.figures.at
    paused = max((one for one in _pauses(party) if one and one > now), default=None)
    kind, text = "well", "active"
    if getattr(party, "deleted_at", None):
        kind, text = "deleted", "deleted"
    elif paused:
        kind, text = "paused", "paused"
    elif party.figures.circuits:
        kind, text = "open", "held back: its jobs fail"
    return format_html('<span class="pulljobs-badge pulljobs-{}">{}</span>', kind, text)


def _pauses(party: Any) -> list[datetime | None]:
    channel = getattr(party, "channel", None)
    return [party.paused_until, channel.paused_until if channel else None]
