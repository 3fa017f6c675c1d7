"""Telemetry events of schedules, emitted after the commit.

SlotsRecorded    slots of schedules of one channel that fired or were skipped
ScheduleRefused  a publish that was refused when the slot was due, or a rule that is not known here
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pulljobs.engine.telemetry import log, logger
from pulljobs.schedules.models import SlotReason


@dataclass(frozen=True, slots=True)
class SlotsRecorded:
    channel: str
    late_seconds: Sequence[float]
    """Lateness in seconds of each slot that fired."""
    skipped: Mapping[str, int]
    """Number of skipped slots by reason."""


@dataclass(frozen=True, slots=True)
class ScheduleRefused:
    channel: str
    schedule: str
    error: str


@log.register
def _(event: SlotsRecorded) -> None:
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(event.skipped.items()))
    if event.skipped.keys() - {SlotReason.OVERLAP, SlotReason.PAUSED, SlotReason.CHANGED}:
        logger.warning("Slots of schedules on %s were skipped: %s.", event.channel, reasons)
    elif event.skipped:
        logger.info("Slots of schedules on %s were skipped: %s.", event.channel, reasons)


@log.register
def _(event: ScheduleRefused) -> None:
    logger.warning(
        "Schedule %s can't publish on %s and is tried again soon: %s",
        event.schedule,
        event.channel,
        event.error,
    )
