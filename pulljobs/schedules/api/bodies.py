"""JSON bodies of requests and answers about schedules."""

from typing import Annotated, Literal, NotRequired, TypedDict

from pulljobs.api.bodies import (
    YEAR,
    Bounds,
    CostNumber,
    HeaderMap,
    Help,
    PriorityLevel,
    Problem,
    TextUpTo,
    Time,
    closed,
)
from pulljobs.schedules.definitions import HIGHEST_BOUND
from pulljobs.schedules.models import Missed as MissedPolicy
from pulljobs.schedules.models import Overlap as OverlapPolicy

NameText = Annotated[str, TextUpTo(255)]
Seconds = Annotated[float, Bounds(0, 100 * YEAR)]
Moment = Annotated[Time, Problem("must be a time such as 2030-01-31T12:00:00Z")]


@closed
class ScheduleFormBody(TypedDict):
    """Options of a schedule: Channel, Cron or EverySeconds, and others that have defaults."""

    Channel: NameText
    Cron: NotRequired[NameText | None]
    EverySeconds: NotRequired[Seconds | None]
    Timezone: NotRequired[Annotated[NameText, Help("IANA name. Absent: UTC.")] | None]
    StartsAt: NotRequired[Moment | None]
    EndsAt: NotRequired[Moment | None]
    JitterSeconds: NotRequired[Seconds | None]
    Missed: NotRequired[Annotated[MissedPolicy, Help("Absent: latest.")] | None]
    MissedBound: NotRequired[Annotated[int, Bounds(1, HIGHEST_BOUND), Help("Absent: 100.")] | None]
    MisfireGraceSeconds: NotRequired[Seconds | None]
    Overlap: NotRequired[Annotated[OverlapPolicy, Help("Absent: allow.")] | None]
    Payload: NotRequired[str | None]
    PayloadBase64: NotRequired[
        Annotated[str, Help("In place of Payload, for a payload that is no text.")] | None
    ]
    ContentType: NotRequired[NameText | None]
    Headers: NotRequired[HeaderMap | None]
    Key: NotRequired[NameText | None]
    Priority: NotRequired[PriorityLevel | None]
    Cost: NotRequired[CostNumber | None]
    Producer: NotRequired[Annotated[NameText, Help("Id of a producer.")] | None]


@closed
class SchedulePauseBody(TypedDict):
    Until: NotRequired[Annotated[Moment, Help("Absent: until the schedule is resumed.")] | None]


@closed
class BackfillBody(TypedDict):
    From: Moment
    To: Annotated[Moment, Help("End of the window, exclusive.")]


class UpcomingSlotBody(TypedDict):
    Slot: Time
    Local: Annotated[str, Help("Time in the zone of the rule.")]
    Change: Annotated[str, Help("Change of the clock since the slot before, or empty.")]


class ScheduleItemBody(TypedDict):
    Name: str
    Channel: str
    Rule: Annotated[str, Help("The rule in words.")]
    State: Literal["active", "paused", "refused", "ended"]
    PausedUntil: Annotated[Time | None, Help("Null: not paused, or until it is resumed.")]
    NextSlot: Time | None
    LastSlot: Time | None
    LastReason: str
    LastLateSeconds: float | None
    Error: Annotated[
        str, Help("Why the last publish was refused or no slot can be found, or empty.")
    ]


class SchedulesBody(TypedDict):
    Result: list[ScheduleItemBody]
    Next: Annotated[str | None, Help("Relative link to the next page.")]


class ScheduleBody(ScheduleItemBody):
    Cron: str
    EverySeconds: float | None
    Timezone: str
    StartsAt: Time | None
    EndsAt: Time | None
    JitterSeconds: float
    Missed: MissedPolicy
    MissedBound: int
    MisfireGraceSeconds: float | None
    Overlap: OverlapPolicy
    ContentType: str
    Key: str | None
    Priority: PriorityLevel
    Cost: CostNumber
    Producer: str | None
    Payload: NotRequired[Annotated[str, Help("Only for users who may view messages.")]]
    PayloadEncoding: NotRequired[
        Annotated[Literal["base64"], Help("Present if the payload is not UTF-8.")]
    ]
    Headers: NotRequired[Annotated[HeaderMap, Help("Only for users who may view messages.")]]
    IsDeclared: Annotated[bool, Help("True if code declared it.")]
    ChangedAt: Time
    Upcoming: list[UpcomingSlotBody]


class SlotBody(TypedDict):
    Slot: Time
    Reason: str
    LateSeconds: float
    MessageID: Annotated[str | None, Help("Null: the slot was skipped.")]
    Error: str | None


class SlotsBody(TypedDict):
    Result: list[SlotBody]
    Next: Annotated[str | None, Help("Relative link to the next page.")]


class BackfilledBody(TypedDict):
    Result: list[SlotBody]
