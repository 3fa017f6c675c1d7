"""JSON bodies of the routes of batches."""

from typing import Annotated, Literal, NotRequired, TypedDict

from pulljobs.api.bodies import (
    YEAR,
    Bounds,
    CostNumber,
    HeaderMap,
    Help,
    PriorityLevel,
    TextUpTo,
    Time,
    closed,
)

NameText = Annotated[str, TextUpTo(255)]
Seconds = Annotated[float, Bounds(0, 100 * YEAR)]


class BatchMessageBody(TypedDict):
    """Message with its payload in Payload or in PayloadBase64, or without payload."""

    Payload: NotRequired[str | None]
    PayloadBase64: NotRequired[
        Annotated[str, Help("In place of Payload, for a payload that is no text.")] | None
    ]
    ContentType: NotRequired[NameText | None]
    Headers: NotRequired[HeaderMap | None]
    Key: NotRequired[NameText | None]
    Priority: NotRequired[PriorityLevel | None]
    Cost: NotRequired[CostNumber | None]


@closed
class MemberBody(BatchMessageBody):
    MessageID: NotRequired[Annotated[NameText, Help("The publisher's own id.")] | None]
    DelaySeconds: NotRequired[Seconds | None]


@closed
class CallbackBody(BatchMessageBody):
    Channel: NameText


@closed
class BatchFormBody(TypedDict):
    """Batch to create. It does not complete before a request closes or cancels it."""

    Name: Annotated[str, TextUpTo(200)]
    OnComplete: NotRequired[CallbackBody | None]
    OnSuccess: NotRequired[CallbackBody | None]
    OnDead: NotRequired[CallbackBody | None]
    Parent: NotRequired[Annotated[NameText, Help("Id of the batch that contains it.")] | None]


@closed
class MembersFormBody(TypedDict):
    Channel: NameText
    Messages: list[MemberBody]


class BatchBody(TypedDict):
    ID: str
    Name: str
    State: Literal["open", "closed", "cancelled", "completed"]
    Round: int
    Progress: Annotated[float, Help("Percent of the members that have ended.")]
    Members: int
    Live: Annotated[int, Help("Members that have not ended.")]
    Delivered: int
    Dead: int
    Redriven: int
    Parent: str | None
    CreatedAt: Time
    ClosedAt: Time | None
    CancelledAt: Time | None
    CompletedAt: Time | None
    ExpectedAt: Annotated[Time | None, Help("Expected end, if members go on ending as fast.")]
    Error: Annotated[str | None, Help("Why a callback was refused.")]


class BatchesBody(TypedDict):
    Result: list[BatchBody]
    Next: Annotated[str | None, Help("Relative link to the next page.")]


class DeadMemberBody(TypedDict):
    JobID: str
    Channel: str
    Consumer: str
    Reason: str
    Error: str | None


class BatchDetailBody(BatchBody):
    DeadMembers: Annotated[list[DeadMemberBody], Help("At most 100, the oldest.")]


class AddedMembersBody(TypedDict):
    Members: Annotated[int, Help("Jobs that were published as members.")]
    Duplicates: Annotated[int, Help("Messages whose id was taken.")]
    FullKeys: Annotated[int, Help("Messages that a full key refused.")]


class CancelledBatchBody(TypedDict):
    Killed: int


class RedrivenBatchBody(TypedDict):
    Redriven: int
