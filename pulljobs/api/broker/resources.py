"""Rendering of channels, producers, consumers, messages and jobs as bodies of the protocol."""

from collections.abc import Sequence
from typing import Final

from rest_framework.request import Request

from pulljobs import ids, registering
from pulljobs.api.bodies import render_payload, render_time
from pulljobs.api.broker.bodies import (
    ChannelBody,
    ConsumerBody,
    DeadJobBody,
    JobBody,
    LimitGroupBody,
    LimitsBody,
    MessageBody,
    MessageJobBody,
    PayloadBody,
    ProducerBody,
    ProgressBody,
    ScheduledMessageBody,
)
from pulljobs.api.broker.links import link_in_channel, link_in_consumer, link_to
from pulljobs.api.permissions import is_permitted
from pulljobs.models import (
    Channel,
    Consumer,
    JobProgress,
    LimitGroup,
    Message,
    Producer,
    ScheduledMessage,
)
from pulljobs.models.flow import FlowLimits
from pulljobs.models.token_holders import TokenHolder
from pulljobs.states import State
from pulljobs.storage.published import MessageJob

CAP: Final = 10_000
"""Largest number of messages, or of jobs of a consumer, that an answer counts exactly."""
DISPATCHED: Final = 102
"""Protocol's status of a message, and of a scheduled message that was published."""
ACKNOWLEDGED: Final = 101
"""Protocol's status of a scheduled message that is not published yet."""


def render_producer(request: Request, producer: Producer, token: str | None) -> ProducerBody:
    return _render_row(producer, token)


def render_channel(request: Request, channel: Channel, token: str | None) -> ChannelBody:
    return {
        **_render_row(channel, token),
        "ConsumersURL": link_in_channel(request, "consumers", channel),
        "MessagesURL": link_in_channel(request, "messages", channel),
        "BroadcastURL": link_in_channel(request, "broadcast", channel),
        "MessagesStatusURL": link_in_channel(request, "messages-status", channel),
    }


def render_consumer(request: Request, consumer: Consumer, token: str | None) -> ConsumerBody:
    return {
        **_render_row(consumer, token),
        "CallbackURL": callback_url(request, consumer),
        "DeadLetterQueueURL": link_in_consumer(request, "dlq", consumer),
        "Type": Consumer.Type(consumer.type),
        "LimitGroup": consumer.limit_group.name if consumer.limit_group else None,
        "MaxInFlightPerKey": consumer.max_in_flight_per_key,
        "RatePerKey": consumer.rate_per_key,
        "FairByKey": consumer.fair_by_key,
        **_render_limits(consumer),
    }


def render_limit_group(request: Request, group: LimitGroup) -> LimitGroupBody:
    members = [member for member in group.consumers.all() if member.deleted_at is None]
    return {
        "ID": group.name,
        "ChangedAt": render_time(group.changed_at),
        **_render_limits(group),
        "ConsumerURLs": [link_in_consumer(request, "consumer", member) for member in members],
    }


def _render_limits(row: FlowLimits) -> LimitsBody:
    return {
        "MaxInFlight": row.max_in_flight,
        "Rate": row.rate or None,
        "RateBurst": row.rate_burst,
        "RateWindow": row.rate_window,
    }


def render_job(
    request: Request, job: MessageJob, message: Message | None, progress: JobProgress | None
) -> JobBody:
    """Render a job for the route of one job.

    `message` is None if its partition was dropped, `progress` if none is stored.
    """
    consumer, producer = job.consumer, message.producer if message else None
    return {
        **render_message_job(request, job),
        "MessageURL": _message_url(request, consumer, message),
        "ChannelURL": link_in_channel(request, "channel", consumer.channel),
        "ConsumerURL": link_in_consumer(request, "consumer", consumer),
        "ProducerURL": link_to(request, "producer", producer=producer.name) if producer else "",
        "JobRequeueURL": _requeue_url(request, job),
        "Progress": None if progress is None else _render_progress(progress),
    }


def _render_progress(progress: JobProgress) -> ProgressBody:
    return {
        "Done": progress.done,
        "Total": progress.total,
        "Note": progress.note,
        "ReportedAt": render_time(progress.reported_at),
    }


def render_dead_job(request: Request, job: MessageJob, message: Message | None) -> DeadJobBody:
    """Render a DEAD job for the route dlq. `message` is None if its partition was dropped."""
    return {
        **render_message_job(request, job),
        "MessageURL": _message_url(request, job.consumer, message),
        "JobRequeueURL": _requeue_url(request, job),
    }


def render_message_job(request: Request, job: MessageJob) -> MessageJobBody:
    return {
        "ListenerEndpoint": callback_url(request, job.consumer),
        "ListenerName": name_of(job.consumer),
        "Status": job.state,
        "StatusChangedAt": render_time(job.since),
    }


def render_message(request: Request, message: Message, jobs: Sequence[MessageJob]) -> MessageBody:
    published_at = render_time(message.published_at)
    return {
        "ID": id_of(message),
        **payload_fields(bytes(message.payload)),
        "ContentType": message.content_type,
        "ProducedBy": name_of(message.producer) if message.producer else "",
        "ReceivedAt": published_at,
        "DispatchedAt": published_at,
        "Status": "DISPATCHED",
        "Jobs": [render_message_job(request, job) for job in jobs],
        "Headers": message.headers,
    }


def render_scheduled_message(
    message: ScheduledMessage, *, with_content: bool
) -> ScheduledMessageBody:
    """Render a scheduled message. Without `with_content` the body lacks payload and headers."""
    dispatched_at = message.dispatched_at
    body: ScheduledMessageBody = {
        "id": ids.encode(message.pk),
        "messageId": message.client_message_id,
        "contentType": message.content_type,
        "priority": message.priority,
        "producedBy": message.producer.name if message.producer else "",
        "dispatchSchedule": render_time(message.dispatch_at),
        "dispatchedAt": render_time(dispatched_at) if dispatched_at else None,
        "status": "DISPATCHED" if dispatched_at else "SCHEDULED",
    }
    if with_content:
        body["payload"], encoding = render_payload(bytes(message.payload))
        body["headers"] = message.headers
        if encoding is not None:
            body["payloadEncoding"] = encoding
    return body


def payload_fields(payload: bytes) -> PayloadBody:
    """Return a payload as fields of a body: as text, or as base64 with the encoding's name."""
    text, encoding = render_payload(payload)
    return {"Payload": text} if encoding is None else {"Payload": text, "PayloadEncoding": encoding}


def render_count(count: int) -> str:
    """Return a count for a sentence: a count above CAP as "more than 10000"."""
    return f"more than {CAP}" if count > CAP else str(count)


def callback_url(request: Request, consumer: Consumer) -> str:
    """Return the callback URL. Login and query are masked if the user can't change consumers."""
    url = consumer.callback_url
    may_change = is_permitted(request, "pulljobs.change_consumer")
    return url if may_change else registering.masked(url)


def name_of(row: TokenHolder) -> str:
    """Return the title of a row, or else its name: the protocol calls them Name and ID."""
    return row.title or row.name


def id_of(message: Message) -> str:
    """Return the client message id, or the message's own public id if the client gave none."""
    return message.client_message_id or ids.encode(message.pk)


def _render_row(row: TokenHolder, token: str | None) -> ProducerBody:
    """Render the common fields of a row, and its token unless that is None.

    The token is None if the user may not see it, or if the server can't decrypt it.
    """
    name, changed_at = name_of(row), render_time(row.changed_at)
    if token is None:
        return {"ID": row.name, "Name": name, "ChangedAt": changed_at}
    return {"ID": row.name, "Name": name, "Token": token, "ChangedAt": changed_at}


def _message_url(request: Request, consumer: Consumer, message: Message | None) -> str:
    if message is None:
        return ""
    return link_in_channel(request, "message", consumer.channel, message=id_of(message))


def _requeue_url(request: Request, job: MessageJob) -> str:
    if job.state != State.DEAD:
        return ""
    xid = ids.encode(job.job_id)
    return link_in_consumer(request, "requeue-dead-job", job.consumer, job=xid)
