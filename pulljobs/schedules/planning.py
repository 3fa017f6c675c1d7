"""Plan of a due schedule: which of its slots fire now, and why others are skipped.

`firing.py` carries plans out. A plan has the slots from `next_slot` to the present.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple

from pulljobs.schedules.models import Missed, SlotReason
from pulljobs.schedules.rules import Rule

ON_TIME: Final = timedelta(seconds=15)
"""Lateness up to which a slot fires with `missed="skip"`. A schedule loop sleeps less than that."""
PASS_SLOTS: Final = 1_000
"""Number of slots in a plan if many more are due. The next plan has those after them."""
cached_rule: Final = lru_cache(maxsize=10_000)(Rule)


class DueSchedule(NamedTuple):
    """Due schedule whose row is locked for firing: a row of due_schedules.sql."""

    id: int
    name: str
    channel_name: str
    cron: str
    every: timedelta | None
    timezone: str
    starts_at: datetime | None
    ends_at: datetime | None
    jitter: timedelta
    payload: bytes
    content_type: str
    headers: dict[str, str]
    key: str | None
    priority: int
    cost: int
    producer_id: int | None
    missed: str
    missed_bound: int
    misfire_grace: timedelta | None
    overlap: str
    paused_at: datetime | None
    paused_until: datetime | None
    earlier_pauses: list[datetime] | None
    next_slot: datetime
    last_message_id: int | None
    failures: int
    error: str
    now: datetime

    @property
    def rule(self) -> Rule:
        return cached_rule(
            self.cron, self.every, self.timezone, self.starts_at, self.ends_at, self.jitter
        )


@dataclass(slots=True)
class PlannedSlot:
    """Slot with the decision about it: it fires if its reason is in FIRED, else it is skipped."""

    slot: datetime
    fires_at: datetime
    reason: SlotReason
    message_id: int | None = None
    error: str | None = None
    late_seconds: float | None = None
    """Seconds after its time at which it was recorded, or None if it has no new record."""


@dataclass(slots=True)
class Plan:
    """Decisions about the due slots of a schedule, in order, and the slot that follows them."""

    schedule: DueSchedule
    slots: list[PlannedSlot] = field(default_factory=list)
    next_slot: datetime | None = None
    is_cut: bool = False
    """True if `next_slot` is due as well, but left to the next plan, because this one is full."""
    refusal: str = ""
    """Reason why publishing refused `next_slot`, or why the rule can't be evaluated."""

    @property
    def firing(self) -> list[PlannedSlot]:
        """Slots that fire now, which are those with the reason DUE."""
        return [slot for slot in self.slots if slot.reason is SlotReason.DUE]

    def refuse(self, refused: PlannedSlot, refusal: str) -> None:
        """Note that publishing refused a slot, and leave it and later slots to the next pass."""
        del self.slots[self.slots.index(refused) :]
        self.next_slot, self.refusal = refused.slot, refusal


def plan_pass(schedule: DueSchedule) -> Plan:
    """Decide about the slots up to `schedule.now`, or about the first 1,000 of many more."""
    kept = schedule.missed_bound if schedule.missed == Missed.ALL else 1
    plan = Plan(schedule)
    for slot, fires_at in _times(schedule):
        if fires_at > schedule.now or len(plan.slots) == PASS_SLOTS + kept:
            plan.next_slot, plan.is_cut = slot, fires_at <= schedule.now
            break
        plan.slots.append(PlannedSlot(slot, fires_at, SlotReason.DUE))
    if plan.is_cut:
        plan.next_slot = plan.slots[PASS_SLOTS].slot
        del plan.slots[PASS_SLOTS:]
    newest = 0 if plan.is_cut else kept
    for count, planned in enumerate(plan.slots):
        is_newest = count >= len(plan.slots) - newest
        _decide(schedule, planned, is_newest=is_newest)
    return plan


def _times(schedule: DueSchedule) -> Iterator[tuple[datetime, datetime]]:
    """Yield each slot from `next_slot` on with its firing time, which the jitter delays."""
    rule, first = schedule.rule, schedule.next_slot
    for slot in chain([first], rule.slots_after(first)):
        yield slot, rule.fires_at(slot, schedule.name)


def _decide(schedule: DueSchedule, planned: PlannedSlot, *, is_newest: bool) -> None:
    """Set the reason for which a slot is skipped, or leave it as DUE, so that it fires.

    `is_newest` is True for the slots that the policy `missed` lets fire late.
    """
    late = schedule.now - planned.fires_at
    grace = schedule.misfire_grace
    if grace is None and schedule.missed == Missed.SKIP:
        grace = ON_TIME
    if is_newest and (grace is None or late <= grace):
        return
    if schedule.failures and planned.slot == schedule.next_slot:
        planned.reason, planned.error = SlotReason.REFUSED, schedule.error
    elif is_in_pause(schedule, planned.slot):
        planned.reason = SlotReason.PAUSED
    elif is_newest and schedule.misfire_grace is not None:
        planned.reason = SlotReason.LATE
    else:
        planned.reason = SlotReason.MISSED


def is_in_pause(schedule: Any, slot: datetime) -> bool:
    """Return True if a slot is in the pause of a schedule, or in one of its `earlier_pauses`.

    `schedule` is a Schedule or a DueSchedule.
    """
    earlier = schedule.earlier_pauses or []
    pauses = [*zip(earlier[::2], earlier[1::2], strict=True)]
    if schedule.paused_at is not None:
        pauses.append((schedule.paused_at, schedule.paused_until))
    return any(begin <= slot and (end is None or slot < end) for begin, end in pauses)
