"""Section of the dashboard: schedules that are due next, and results of the last hour's slots."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db.models import Exists, OuterRef, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from pulljobs.admin.dashboard import formats
from pulljobs.admin.dashboard.attention import Attention
from pulljobs.admin.dashboard.sections import Section
from pulljobs.admin.links import Links
from pulljobs.conf import settings
from pulljobs.models import Consumer
from pulljobs.schedules.doctor import LATE
from pulljobs.schedules.firing import LONGEST_RETRY
from pulljobs.schedules.models import FIRED, Schedule, Slot, SlotReason

NAME: Final = "schedules"
SHOWN: Final = 5
LOOKED_AT: Final = 1_000
"""Number of schedules due next that are checked for a channel without consumers."""
COUNTED: Final = 2_000
"""Maximum number of records that are read, the newest ones."""
WITHIN: Final = timedelta(hours=1)


@dataclass(frozen=True)
class RecentSlots:
    """Records of slots of the last hour, at most the newest 2,000."""

    records: Sequence[tuple[str, float]]
    """Reason and lateness in seconds of each record."""

    @property
    def fired(self) -> str:
        """Number of slots that fired, as text such as "1,900+" if more than that may have fired."""
        count = sum(reason in FIRED for reason, _late in self.records)
        return formats.counted(count, is_least=len(self.records) == COUNTED)

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """Label of each reason with the number of slots it skipped, the most frequent first."""
        counts = Counter(reason for reason, _late in self.records if reason not in FIRED)
        return [
            (str(SlotReason(reason).label), formats.number(count))
            for reason, count in counts.most_common()
        ]

    @property
    def latest(self) -> str:
        """Largest lateness, as text, of slots that fired by the rule, or "" if no slot did."""
        late = [late for reason, late in self.records if reason == SlotReason.DUE]
        return formats.duration(max(late)) if late else ""


@dataclass(frozen=True)
class UpcomingSchedule:
    """Line of the section: a schedule among the five that are due first."""

    row: Schedule
    address: str | None
    seconds: float
    """Seconds until it is due, below zero if it is late."""

    @property
    def time(self) -> str:
        """Time until the schedule is due, as text such as "in 5 s" or "late by 5 s"."""
        if self.seconds < 0:
            return _("late by %s") % formats.duration(-self.seconds)
        return _("in %s") % formats.duration(self.seconds)


@dataclass(frozen=True)
class SchedulesContent:
    """Values for the template of the section."""

    upcoming: Sequence[UpcomingSchedule]
    recent: RecentSlots
    address: str | None
    """URL of the list of schedules."""


def read_section(at: datetime, links: Links) -> Section | None:
    """Return the section, or None if no schedule is waiting for a slot and none had one recently.

    Each statement reads a part of an index: some first entries, or those that are due in a minute.
    """
    using = settings().DATABASE
    rows = Schedule.objects.using(using).defer("payload", "headers").order_by("due_at")
    due = list(rows.filter(due_at__isnull=False)[:SHOWN])
    records = Slot.objects.using(using).filter(slot_at__gt=at - WITHIN).order_by("-slot_at")
    recent = RecentSlots(list(records.values_list("reason", "late_seconds")[:COUNTED]))
    if not due and not recent.records:
        return None
    upcoming = [_describe(row, at, links) for row in due]
    content = SchedulesContent(upcoming, recent, links.page(Schedule, "changelist"))
    template = "admin/pulljobs_schedules/dashboard.html"
    return Section(NAME, template, content, list(_check(rows, at)))


def _describe(row: Schedule, at: datetime, links: Links) -> UpcomingSchedule:
    due_at = at if row.due_at is None else row.due_at
    address = links.page(Schedule, "change", row.pk)
    return UpcomingSchedule(row, address, (due_at - at).total_seconds())


def _check(rows: QuerySet[Schedule], at: datetime) -> Iterator[Attention]:
    """Yield warnings of schedules that can't publish, are late, or publish to no consumer."""
    for row in rows.filter(failures__gt=0, due_at__lte=at + LONGEST_RETRY)[:SHOWN]:
        values = {"name": row.name, "error": row.error}
        yield Attention(True, _("Schedule %(name)s can't publish: %(error)s") % values, NAME)
    late = rows.filter(failures=0, due_at__lt=at - LATE)[:SHOWN]
    if names := [row.name for row in late]:
        text = ngettext(
            "No process fires the schedule %s, which is due.",
            "No process fires schedules that are due, such as %s.",
            len(names),
        )
        yield Attention(True, text % ", ".join(names), NAME)
    if useless := _find_useless(rows):
        text = ngettext(
            "The schedule %s publishes on a channel without consumers, so nothing runs.",
            "Schedules publish on channels without consumers, so nothing runs: %s.",
            len(useless),
        )
        yield Attention(False, text % ", ".join(useless), NAME)


def _find_useless(rows: QuerySet[Schedule]) -> list[str]:
    """Return up to five names of schedules on channels without consumers, from the 1,000 due next.

    A schedule whose last publish was refused is left out: another warning names it.
    """
    consumers = Consumer.objects.using(rows.db).filter(
        channel__name=OuterRef("channel_name"), deleted_at=None
    )
    due = rows.filter(due_at__isnull=False).annotate(is_served=Exists(consumers))
    named = due.values_list("name", "failures", "is_served")[:LOOKED_AT]
    useless = [name for name, failures, is_served in named if not (failures or is_served)]
    return sorted(useless[:SHOWN])  # Many are due at the same time, in no order.
