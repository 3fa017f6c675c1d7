"""Text and HTML of schedules, and of the records of their slots, for pages of the admin."""

from datetime import datetime
from typing import Any, Final, NamedTuple

from django.db.models import QuerySet
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _

from pulljobs import ids
from pulljobs.admin import formats
from pulljobs.admin.action_pages import parse_time
from pulljobs.conf import settings
from pulljobs.schedules.admin.fields import format_interval
from pulljobs.schedules.models import FIRED, Missed, Schedule, Slot, SlotReason
from pulljobs.schedules.reading import state_of
from pulljobs.schedules.rules import Rule, format_slot

SHOWN: Final = 20
"""Number of records on a page of the history."""
BADGES: Final = {"active": "well", "paused": "paused", "refused": "dead", "ended": "ended"}


class SlotRow(NamedTuple):
    """Record of a fired or skipped slot as text, for the history on the page of a schedule."""

    local: str
    """Time in the zone of the rule."""
    utc: str
    is_fired: bool
    reason: str
    error: str
    late: str
    message: str | None
    """Public id of the message."""


class SlotHistory(NamedTuple):
    """Page of the history: records of one schedule, the newest first."""

    rows: list[SlotRow]
    is_newest: bool
    older: str | None
    """Slot, as text, before which the next page begins, or None on the last page."""


def read_history(row: Schedule, before: str) -> SlotHistory:
    """Return a page of the history: the newest 20 records before an ISO 8601 time.

    With "" or other text for `before` it is the first page.
    """
    records: QuerySet[Slot] = Slot.objects.using(settings().DATABASE).filter(schedule_id=row.pk)
    below = parse_time(before)
    if below is not None:
        records = records.filter(slot_at__lt=below)
    read = list(records.order_by("-slot_at")[: SHOWN + 1])
    older = format_slot(read[SHOWN - 1].slot_at) if len(read) > SHOWN else None
    return SlotHistory(
        [describe_record(slot, row.rule) for slot in read[:SHOWN]], below is None, older
    )


def describe_record(slot: Slot, rule: Rule) -> SlotRow:
    """Return the texts that a page shows of a slot's record. `rule` gives the local time zone."""
    return SlotRow(
        format_local(slot.slot_at, rule),
        format_slot(slot.slot_at),
        slot.reason in FIRED,
        slot.get_reason_display(),
        slot.error or "",
        formats.duration(slot.late_seconds),
        None if slot.message_id is None else ids.encode(slot.message_id),
    )


def format_local(at: datetime, rule: Rule) -> str:
    """Return a time as text with its UTC offset, in the rule's zone.

    It is in UTC if this machine does not know the zone.
    """
    return at.astimezone(rule.shown_zone).isoformat(sep=" ", timespec="seconds")


def show_rule(row: Schedule) -> SafeString:
    """Return the rule in words, with the cron rule below it."""
    return format_html('{} <span class="pulljobs-brief">{}</span>', row.rule.describe(), row.cron)


def show_state(row: Schedule, now: datetime) -> SafeString:
    """Return the state as a badge. Below it: the end of a pause, the error, "declared in code"."""
    state = state_of(row, now)
    lines = [_describe_pause(row) if state == "paused" else ""]
    lines.append(Truncator(row.error).chars(formats.BRIEF))
    lines.append(_("declared in code") if row.is_declared else "")
    shown = [(line,) for line in lines if line]
    return format_html(
        '<span class="pulljobs-badge pulljobs-{}">{}</span> {}',
        BADGES[state],
        state,
        format_html_join("", '<span class="pulljobs-brief">{}</span>', shown),
    )


def show_last(row: Schedule) -> SafeString | str:
    """Return the last slot with its result below it, or a dash if no slot has a record."""
    if row.last_slot is None:
        return formats.NOTHING
    at, outcome = formats.format_time(row.last_slot), describe_outcome(row)
    return format_html('{} <span class="pulljobs-brief">{}</span>', at, outcome)


def describe_outcome(row: Schedule) -> str:
    """Describe the last slot: how late it fired, or why it was skipped."""
    if row.last_reason in FIRED:
        return _("fired, %s late") % formats.duration(max(0.0, row.last_late_seconds or 0.0))
    if row.last_reason not in SlotReason.values:
        return formats.NOTHING
    return _("skipped: %s") % SlotReason(row.last_reason).label


def describe_pause_of(row: Schedule, now: datetime) -> str:
    """Return text such as "paused until ...", or an empty text if the schedule is not paused."""
    if not row.is_paused(now):
        return ""
    return _("paused") if row.paused_until is None else _("paused %s") % _describe_pause(row)


def list_facts(row: Schedule) -> list[tuple[str, str]]:
    """Return the options of a schedule as (label, text), for users who may not change them.

    Options without a value are left out.
    """
    facts: list[tuple[str, Any]] = [
        (_("Channel"), row.channel_name),
        (_("Rule"), row.rule.describe()),
        (_("Cron rule"), row.cron),
        (_("Starts at"), row.starts_at and format_local(row.starts_at, row.rule)),
        (_("Ends at"), row.ends_at and format_local(row.ends_at, row.rule)),
        (_("Jitter"), row.jitter and format_interval(row.jitter)),
        (_("Missed slots"), row.get_missed_display()),
        (_("Bound of missed slots"), row.missed == Missed.ALL and row.missed_bound),
        (_("Grace"), row.misfire_grace is not None and format_interval(row.misfire_grace)),
        (_("While a job of the previous message is live"), row.get_overlap_display()),
        (_("Key"), row.key),
        (_("Priority"), row.priority),
        (_("Cost"), row.cost if row.cost != 1 else None),
        (_("Producer"), row.producer),
    ]
    return [(name, str(value)) for name, value in facts if value]


def _describe_pause(row: Schedule) -> str:
    if row.paused_until is None:
        return _("until it is resumed")
    return _("until %s") % formats.format_time(row.paused_until)
