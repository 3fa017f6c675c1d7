"""Formatting of values that several pages of the admin show."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from django.http import HttpRequest
from django.urls import reverse
from django.utils.formats import date_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.timezone import localtime

from pulljobs.conf import settings
from pulljobs.diagnosis.serving import HeldBack
from pulljobs.models import ArchivedJob, Job, Lease, Node

NOTHING: Final = "-"
BRIEF: Final = 80
SHOWN_CAUSES: Final = 3
UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def holder_of(job: Job) -> str:
    """Describe which node or client holds a job, how and until when, or return "-" for none."""
    leases = Lease.objects.using(settings().DATABASE).filter(lease_token__in=[job.lease_token])
    lease = leases.filter(job_ids__contains=[job.pk]).first()
    if lease is None:
        return NOTHING
    holder, until = node_of(lease) or "a client", format_time(lease.leased_until)
    return f"{holder}, via {lease.get_via_display()}, until {until}"


def node_of(row: Lease | ArchivedJob) -> Node | None:
    """Return the node of a claim or settlement, or None if none made it or its row was deleted."""
    return Node.objects.using(settings().DATABASE).filter(pk__in=[row.node_id]).first()


def in_two_columns(*fields: str) -> Any:
    """Return the options of a fieldset that has two columns where the window is wide enough."""
    return {"classes": ["pulljobs-two"], "fields": fields}


def preformatted(text: Any) -> SafeString | str:
    """Return a text as a `pre` block that the keyboard can scroll, or "-" if it is empty."""
    if not text:
        return NOTHING
    return format_html('<pre class="pulljobs" tabindex="0">{}</pre>', text)


def format_time(at: datetime | None) -> str:
    """Format a time in Django's time zone, to the second, or return "-" for None."""
    return date_format(localtime(at), "Y-m-d H:i:s") if at else NOTHING


def time_and_age(at: datetime, now: datetime) -> SafeString:
    """Return a time, with the time since then below it, or until then if it is later than `now`."""
    seconds = (now - at).total_seconds()
    distance = f"{duration(seconds)} ago" if seconds >= 0 else f"in {duration(-seconds)}"
    return format_html('{} <span class="pulljobs-brief">{}</span>', format_time(at), distance)


def job_id_of(row: Job | ArchivedJob) -> int:
    """Return the id of a live or archived job."""
    return row.job_id if isinstance(row, ArchivedJob) else row.id


def address(site: str, page: str, *ids: Any) -> str:
    """Return the URL of a page, such as "pulljobs_job_change", in the admin site of this name."""
    return reverse(f"admin:{page}", args=ids, current_app=site)


def site_of(request: HttpRequest) -> str:
    """Return the name of the admin site that answers the request."""
    return request.resolver_match.namespace if request.resolver_match else "admin"


def page_of(site: str, row: Job | ArchivedJob) -> str:
    """Return the URL of the page of a live job or a settlement in the admin site of this name."""
    return address(site, f"pulljobs_{row._meta.model_name}_change", row.pk)


def state_of(job: Job | ArchivedJob) -> str:
    """Return the state of a job as text, for a dead job with the reason of its death."""
    return f"{job.state}, {job.get_reason_display()}" if job.reason else job.state


def badge(job: Job | ArchivedJob) -> SafeString:
    """Return the state of a job as a coloured badge, with the reason if the job is dead."""
    return format_html(
        '<span class="pulljobs-badge pulljobs-{}">{}</span>', job.state.lower(), state_of(job)
    )


def status_of(job: Job | ArchivedJob, timing: str = "") -> SafeString:
    """Return the badge of a job's state. Below it are `timing` and the start of its last error.

    `timing` is "" or the text of `describe_timing`.
    """
    lines = [timing, Truncator((job.error or "").partition("\n")[0]).chars(BRIEF)]
    shown = [(line,) for line in lines if line]
    below = format_html_join("", '<span class="pulljobs-brief">{}</span>', shown)
    return format_html("{} {}", badge(job), below) if below else badge(job)


def describe_timing(job: Job | ArchivedJob, now: datetime) -> str:
    """Return when an archived job settled, or in how long a queued job will be due, else ""."""
    if isinstance(job, ArchivedJob):
        return f"settled {format_time(job.settled_at)}"
    if job.due_at is None or job.due_at <= now or job.lease_token:
        return ""
    return f"due in {duration((job.due_at - now).total_seconds())}"


def duration(seconds: float | None) -> str:
    """Format seconds in the largest unit of which there are two (90 s, 3 h), and None as "-"."""
    if seconds is None:
        return NOTHING
    for size, unit in UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def status_badge(token_holder: Any) -> SafeString:
    """Return a badge: the channel or consumer is deleted, paused, throttled, held back or active.

    It needs the row's `figures`, which its list has set.
    """
    now = token_holder.figures.at
    paused = max((end for end in _pauses(token_holder) if end and end > now), default=None)
    kind, text = "well", "active"
    if getattr(token_holder, "deleted_at", None):
        kind, text = "deleted", "deleted"
    elif paused:
        kind, text = "paused", "paused"
    elif (until := getattr(token_holder, "throttled_until", None)) and until > now:
        kind, text = "paused", "throttled"
    elif token_holder.figures.held_back:
        return _held_back_badge(token_holder.figures.held_back)
    return format_html('<span class="pulljobs-badge pulljobs-{}">{}</span>', kind, text)


def _held_back_badge(held_back: Sequence[HeldBack]) -> SafeString:
    """Return a badge for consumers or tasks whose jobs fail, with the causes below it."""
    by_subject = {held.subject: f"{held.subject}: {held.cause}" for held in held_back}
    causes = list(by_subject.values())[:SHOWN_CAUSES]
    if more := len(by_subject) - len(causes):
        causes.append(f"and {more} more")
    are_tasks = all(held.task for held in held_back)
    return format_html(
        '<span class="pulljobs-badge pulljobs-open">{}</span> {}',
        "tasks held back: they fail" if are_tasks else "held back: its jobs fail",
        format_html_join("", '<span class="pulljobs-brief">{}</span>', zip(causes)),
    )


def _pauses(token_holder: Any) -> list[datetime | None]:
    channel = getattr(token_holder, "channel", None)
    return [token_holder.paused_until, channel.paused_until if channel else None]
