"""JSON bodies and forms of the broker protocol, by the names that the protocol gives them."""

from typing import Annotated, Literal, NotRequired, TypedDict

from pulljobs.api.bodies import (
    YEAR,
    Bounds,
    ConsumerType,
    Format,
    HeaderMap,
    Help,
    Natural,
    PriorityLevel,
    Problem,
    TextUpTo,
    Time,
    closed,
)
from pulljobs.states import State

Encoding = Literal["base64"]
CallbackUrl = Annotated[
    str, Help("Users who may not change the consumer see `***` for login and query.")
]
TokenText = Annotated[str, Help("Only for users who may change the row.")]


class TransitionBody(TypedDict):
    NextState: Annotated[State, Problem("must be INFLIGHT, DELIVERED or DEAD")]
    IncrementalTimeout: NotRequired[
        Annotated[
            int,
            Bounds(0, YEAR),
            Help("Seconds."),
            Problem("must be whole seconds, from 0 to a year"),
        ]
        | None
    ]


class RegistryFormBody(TypedDict):
    token: NotRequired[
        Annotated[str, TextUpTo(255, r"^[\u0021-\u007e]*$"), Help("Absent: a random token.")]
    ]
    name: NotRequired[Annotated[str, TextUpTo(255), Help("Absent: the id.")]]


@closed
class LimitsFormBody(TypedDict):
    maxInFlight: NotRequired[
        Annotated[str, TextUpTo(9, r"^[0-9]*$"), Help("Empty: any number. Absent: unchanged.")]
    ]
    rate: NotRequired[
        Annotated[
            str,
            TextUpTo(24, r"^([0-9]+/[smhd])?$"),
            Help("Such as 100/m. Empty: no rate, and its fields are reset. Absent: unchanged."),
        ]
    ]
    rateBurst: NotRequired[
        Annotated[
            str,
            TextUpTo(7, r"^[0-9]*$"),
            Help("Empty: the jobs of a second. Absent: unchanged."),
        ]
    ]
    rateWindow: NotRequired[
        Annotated[
            str,
            TextUpTo(5, r"^(true|false)?$"),
            Help("true: the rate counts in fixed windows of its unit. Absent: unchanged."),
        ]
    ]


class ConsumerFormBody(RegistryFormBody, LimitsFormBody):
    callbackUrl: NotRequired[
        Annotated[str, TextUpTo(2000), Format("uri"), Help("Required for push consumers.")]
    ]
    type: NotRequired[Annotated[ConsumerType, Help("Absent: push.")]]
    limitGroup: NotRequired[
        Annotated[str, TextUpTo(255), Help("Empty: no group. Absent: unchanged.")]
    ]
    maxInFlightPerKey: NotRequired[
        Annotated[str, TextUpTo(9, r"^[0-9]*$"), Help("Empty: any number. Absent: unchanged.")]
    ]
    ratePerKey: NotRequired[
        Annotated[
            str,
            TextUpTo(5, r"^(true|false)?$"),
            Help("true: the rate holds for each key by itself. Absent: unchanged."),
        ]
    ]
    fairByKey: NotRequired[
        Annotated[
            str,
            TextUpTo(5, r"^(true|false)?$"),
            Help("true: keys with waiting jobs take turns. Absent: unchanged."),
        ]
    ]


@closed
class KeyWeightFormBody(TypedDict):
    key: NotRequired[Annotated[str, TextUpTo(255), Help("Absent: jobs without a key.")]]
    weight: Annotated[
        str,
        TextUpTo(4, r"^0*([1-9][0-9]{0,2}|1000)$"),
        Help("Jobs that the key gives while others give one, from 1 to 1000."),
    ]


class RequeueFormBody(TypedDict):
    requeue: Annotated[str, Help("The consumer's token.")]


class PagesBody(TypedDict):
    next: NotRequired[str]
    previous: NotRequired[str]


class ListingBody(TypedDict):
    """Page of relative links to rows. Unless empty, it links to the next and the previous page."""

    Result: list[str]
    Pages: PagesBody
    Links: Annotated[str | None, Help("Always null.")]


class ProducerBody(TypedDict):
    ID: str
    Name: str
    Token: NotRequired[TokenText]
    ChangedAt: Time


class ChannelBody(ProducerBody):
    ConsumersURL: str
    MessagesURL: str
    BroadcastURL: str
    MessagesStatusURL: str


class LimitsBody(TypedDict):
    MaxInFlight: int | None
    Rate: str | None
    RateBurst: int | None
    RateWindow: bool


class ConsumerBody(ProducerBody, LimitsBody):
    CallbackURL: CallbackUrl
    DeadLetterQueueURL: str
    Type: ConsumerType
    LimitGroup: str | None
    MaxInFlightPerKey: int | None
    RatePerKey: bool
    FairByKey: bool


class LimitGroupBody(LimitsBody):
    ID: str
    ChangedAt: Time
    ConsumerURLs: list[str]


class LimitGroupsBody(TypedDict):
    Result: list[LimitGroupBody]


class KeyWeightBody(TypedDict):
    Key: str
    Weight: Annotated[int, Bounds(1, 1_000)]


class KeyWeightsBody(TypedDict):
    Result: list[KeyWeightBody]
    Next: Annotated[str | None, Help("Path of the next page, or null.")]


class PayloadBody(TypedDict):
    Payload: str
    PayloadEncoding: NotRequired[Annotated[Encoding, Help("Present if the payload is not UTF-8.")]]


class QueuedMessageBody(PayloadBody):
    MessageID: str
    Headers: HeaderMap
    ContentType: str


class QueuedJobBody(TypedDict):
    ID: str
    Priority: PriorityLevel
    IncrementalTimeout: Natural
    Message: QueuedMessageBody


class QueuedJobsBody(TypedDict):
    Result: list[QueuedJobBody]


class MessageJobBody(TypedDict):
    ListenerEndpoint: CallbackUrl
    ListenerName: str
    Status: State
    StatusChangedAt: Time


class DeadJobBody(MessageJobBody):
    MessageURL: str
    JobRequeueURL: str


class ProgressBody(TypedDict):
    Done: float
    Total: float | None
    Note: str
    ReportedAt: Time


class JobBody(MessageJobBody):
    MessageURL: str
    ChannelURL: str
    ConsumerURL: str
    ProducerURL: str
    JobRequeueURL: str
    Progress: ProgressBody | None


class DeadJobsBody(TypedDict):
    DeadJobs: list[DeadJobBody]
    Pages: PagesBody


class DeletedBody(TypedDict):
    deletedCount: Natural


class MessageBody(PayloadBody):
    ID: str
    ContentType: str
    ProducedBy: str
    ReceivedAt: Time
    DispatchedAt: Time
    Status: Literal["DISPATCHED"]
    Jobs: list[MessageJobBody]
    Headers: HeaderMap


class MessagesLinkBody(TypedDict):
    messages: str


class MessageCountBody(TypedDict):
    Count: Natural
    Capped: NotRequired[bool]
    Links: MessagesLinkBody


class MessageCountsBody(TypedDict):
    counts: dict[str, MessageCountBody]
    next_scheduled_message_at: NotRequired[Time]


class ScheduledListingBody(TypedDict):
    result: list[str]
    pages: PagesBody


class ScheduledMessageBody(TypedDict):
    id: str
    messageId: str
    contentType: str
    priority: int
    producedBy: str
    dispatchSchedule: Time
    dispatchedAt: Time | None
    status: Literal["SCHEDULED", "DISPATCHED"]
    payload: NotRequired[Annotated[str, Help("Only for users who may view messages.")]]
    payloadEncoding: NotRequired[Encoding]
    headers: NotRequired[Annotated[HeaderMap, Help("Only for users who may view messages.")]]


class NamedBody(TypedDict):
    ID: str
    Name: str


class NamedConsumerBody(NamedBody):
    Channel: str
    Type: ConsumerType


class SeedBody(TypedDict):
    Channels: list[NamedBody]
    Producers: list[NamedBody]
    Consumers: list[NamedConsumerBody]
    Capped: NotRequired[bool]


class AppStatusBody(TypedDict):
    SeedData: SeedBody
    AppStatus: Annotated[int, Bounds(3, 3)]


class DeadCountBody(TypedDict):
    channelId: str
    channelName: str
    consumerId: str
    consumerName: str
    deadCount: Natural
    Capped: NotRequired[bool]


class DeadCountsBody(TypedDict):
    consumers: list[DeadCountBody]


class StateCountBody(TypedDict):
    status: Literal[1001, 1002, 1003, 1004]
    count: Natural
    oldestItemTimestamp: Time | None
    newestItemTimestamp: Time | None
    Capped: NotRequired[bool]


StateCounts = dict[str, dict[str, list[StateCountBody]]]
"""Counts by channel, then by the primary key of the consumer."""
