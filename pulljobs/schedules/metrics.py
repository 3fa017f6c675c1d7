"""Metrics that each process counts from the telemetry events of schedules."""

from functools import cache
from typing import Final

from pulljobs.metrics.families import CHANNEL, Family, Type
from pulljobs.metrics.recorder import count, observe, record
from pulljobs.schedules.models import SlotReason
from pulljobs.schedules.telemetry import ScheduleRefused, SlotsRecorded

LATE: Final = "pulljobs_slot_late_seconds"
SKIPPED: Final = "pulljobs_slots_skipped_total"
REFUSED: Final = "pulljobs_schedule_refusals_total"
FAMILIES: Final = (
    Family(
        LATE,
        Type.HISTOGRAM,
        CHANNEL,
        "Time from the planned time of a slot that fired to its record, by the database's clock. "
        "The count is the number of slots that fired.",
    ),
    Family(
        SKIPPED,
        Type.COUNTER,
        (*CHANNEL, "reason"),
        "Slots that were skipped: `missed`, `late`, `paused`, `overlap`, `refused` or `changed`.",
    ),
    Family(
        REFUSED,
        Type.COUNTER,
        CHANNEL,
        "Publishes of schedules that were refused; each is tried again with growing pauses.",
    ),
)
FROM_THE_START: Final = (SlotReason.MISSED, SlotReason.LATE, SlotReason.REFUSED)


@record.register
def _(event: SlotsRecorded) -> None:
    _introduce(event.channel)
    observe(LATE, event.late_seconds, event.channel)
    for reason, slots in event.skipped.items():
        count(SKIPPED, event.channel, reason, by=slots)


@record.register
def _(event: ScheduleRefused) -> None:
    _introduce(event.channel)
    count(REFUSED, event.channel)


@cache
def _introduce(channel: str) -> None:
    """Start the counters of a channel at 0, because Prometheus sees no rise in a first value."""
    for reason in FROM_THE_START:
        count(SKIPPED, channel, reason, by=0)
    count(REFUSED, channel, by=0)
