"""JSON bodies of the lease protocol: requests, then answers."""

from enum import StrEnum
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from pulljobs.api.bodies import (
    YEAR,
    Bounds,
    ConsumerType,
    CostNumber,
    Format,
    HeaderMap,
    Help,
    ItemsUpTo,
    Natural,
    PriorityLevel,
    Problem,
    TextUpTo,
    Time,
    UpTo,
    closed,
)
from pulljobs.errors import LONGEST_NOTE

AsPulled = Annotated[str, Problem("must be text, as the pull returned it")]
RequestId = Annotated[
    str,
    TextUpTo(255, r"^[\u0020-\u007e]*$"),
    Problem("must be at most 255 printable characters"),
]
NameText = Annotated[str, TextUpTo(255)]
ProgressNumber = Annotated[float, Bounds(0), Problem("must be a number from 0")]


class JobOutcome(StrEnum):
    """Outcome of a job that a client reports."""

    DELIVERED = "DELIVERED"
    DEAD = "DEAD"
    RETRY = "RETRY"
    RELEASE = "RELEASE"


class ItemStatus(StrEnum):
    """Result of an ack or a renewal for one job."""

    OK = "ok"
    LEASE_LOST = "lease_lost"
    NOT_FOUND = "not_found"
    REFUSED = "refused"
    """The database rejected the outcome, which is not known to happen."""
    LOCKED = "locked"
    """Another transaction keeps the row locked: the client repeats the item a second later."""


class LineStatus(StrEnum):
    """Result of publishing the message in one line of a POST to broadcast-batch."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    KEY_FULL = "key_full"
    INVALID = "invalid"
    TOO_LARGE = "too_large"


class PullBody(TypedDict):
    Batch: NotRequired[Annotated[int, Bounds(1), UpTo("MAX_BATCH")] | None]
    Expires: NotRequired[Annotated[float, Bounds(0), UpTo("MAX_EXPIRES")] | None]
    NoWait: NotRequired[bool | None]
    MaxBytes: NotRequired[Natural | None]
    RequestID: NotRequired[RequestId | None]
    IncrementalTimeout: NotRequired[Annotated[int, Bounds(0, YEAR)] | None]


class OutcomeBody(TypedDict):
    ID: AsPulled
    LeaseToken: AsPulled
    Outcome: JobOutcome
    DelaySeconds: NotRequired[Annotated[float, Bounds(0)] | None]
    Reason: NotRequired[str | None]
    Error: NotRequired[str | None]
    Result: NotRequired[Annotated[Any, Help("Result of a DELIVERED job: any JSON.")]]
    ThrottleSeconds: NotRequired[
        Annotated[
            float,
            Bounds(0, YEAR),
            Help("For so long no job of the consumer is claimed, by whatever way in."),
        ]
        | None
    ]
    ThrottleKey: NotRequired[Annotated[bool, Help("true: no job of the same key.")] | None]


@closed
class AckBody(TypedDict):
    Results: NotRequired[Annotated[list[OutcomeBody], ItemsUpTo("MAX_BATCH")] | None]
    Pull: NotRequired[PullBody | None]


class HeldBody(TypedDict):
    ID: AsPulled
    LeaseToken: AsPulled


class ReportBody(TypedDict):
    Done: ProgressNumber
    Total: NotRequired[ProgressNumber | None]
    Note: NotRequired[Annotated[str, Help(f"Cut to {LONGEST_NOTE} characters.")] | None]


class LeaseBody(HeldBody):
    Progress: NotRequired[ReportBody | None]


@closed
class RenewBody(TypedDict):
    Leases: NotRequired[Annotated[list[LeaseBody], ItemsUpTo("MAX_BATCH")] | None]
    Seconds: NotRequired[Annotated[float, Bounds(0.001, YEAR)] | None]


@closed
class PauseBody(TypedDict):
    Until: (
        Annotated[
            Time,
            Help("Null or a past time ends the pause."),
            Problem("must be null or a time such as 2030-01-31T12:00:00Z, before the year 9000"),
        ]
        | None
    )


@closed
class LineBody(TypedDict):
    """Message in one line of a POST to broadcast-batch, with Payload or PayloadBase64."""

    Payload: NotRequired[str | None]
    PayloadBase64: NotRequired[str | None]
    MessageID: NotRequired[NameText | None]
    Key: NotRequired[NameText | None]
    Priority: NotRequired[PriorityLevel]
    Cost: NotRequired[CostNumber]
    Headers: NotRequired[HeaderMap | None]
    ContentType: NotRequired[NameText | None]


class PulledMessageBody(TypedDict):
    MessageID: str
    Payload: str
    PayloadEncoding: Literal["base64"] | None
    ContentType: str
    Headers: HeaderMap
    PublishedAt: Time


class PulledJobBody(TypedDict):
    ID: str
    Priority: PriorityLevel
    RetryCount: Natural
    Deliveries: Annotated[int, Bounds(1)]
    Key: str | None
    LeaseToken: Annotated[str, Format("uuid")]
    LeaseExpiresAt: Time
    LeaseSeconds: float
    Message: PulledMessageBody


class PullStatusBody(TypedDict):
    Code: int
    Reason: str
    PendingMessages: Natural
    PendingBytes: Natural
    RetryAfterSeconds: NotRequired[
        Annotated[
            float,
            Bounds(0),
            Help("With the codes 429 and 503, and with key_limited if the time is known."),
        ]
    ]


class PulledBody(TypedDict):
    Result: list[PulledJobBody]
    Status: PullStatusBody


class SettledBody(TypedDict):
    ID: str
    Status: ItemStatus


class AckedBody(TypedDict):
    Results: list[SettledBody]
    Result: NotRequired[list[PulledJobBody]]
    Status: NotRequired[PullStatusBody]


class RenewedJobBody(SettledBody):
    LeaseExpiresAt: NotRequired[Time]
    RemainingSeconds: NotRequired[Annotated[float, Bounds(0)]]


class RenewedBody(TypedDict):
    Results: list[RenewedJobBody]


class InfoBody(TypedDict):
    """Counts of a consumer's jobs, up to 10,000 each (if `Capped`, maybe more), and its limits."""

    NumQueued: Natural
    NumDelayed: Natural
    NumBlocked: Natural
    NumInFlight: Natural
    NumRedelivered: Natural
    NumWaiting: Natural
    NumDead: Natural
    OldestQueuedSeconds: float | None
    Delivered: Natural
    AckFloor: str | None
    Capped: bool
    Paused: bool
    PauseUntil: Time | None
    MaxBatch: int
    MaxExpires: float
    MaxInFlight: int | None
    Rate: str | None
    RateBurst: int | None
    RateWindow: bool
    LimitGroup: str | None
    MaxInFlightPerKey: int | None
    RatePerKey: bool
    FairByKey: bool
    MaxWaiting: int
    MaxPayloadBytes: int
    LeaseSeconds: float
    MaxLeaseSeconds: float
    MaxRetries: int
    MaxDeliveries: int
    RetryDelays: list[float]
    Now: Time


class PausedBody(TypedDict):
    PauseUntil: Time | None


class PurgedBody(TypedDict):
    Purged: Natural


class AcceptedBody(TypedDict):
    Line: Annotated[int, Bounds(1)]
    MessageID: str | None
    Status: LineStatus
    ReplacedJobs: NotRequired[
        Annotated[list[str], Help("Queued jobs that have this message now, in place of another.")]
    ]
    Error: NotRequired[str]


class AcceptedLinesBody(TypedDict):
    Results: list[AcceptedBody]


class ListedConsumerBody(TypedDict):
    ID: str
    Name: str
    Type: ConsumerType


class LookupBody(TypedDict):
    Addresses: list[str]
    Consumers: list[ListedConsumerBody]


class HealthBody(TypedDict):
    Status: Literal["ok"]
