from typing import Any

from rest_framework.request import Request

from pulljobs import ids
from pulljobs.api import times
from pulljobs.api.broker import links
from pulljobs.api.resources.registry import callback_url, name_of
from pulljobs.models import Consumer, Message
from pulljobs.states import State
from pulljobs.storage.published import Standing


def job(request: Request, standing: Standing, message: Message | None) -> dict[str, Any]:
    """One job; its message may have been dropped with its day."""
    consumer, producer = standing.consumer, message.producer if message else None
    return {
        **job_of_message(request, standing),
        "MessageURL": _message_url(request, consumer, message),
        "ChannelURL": links.to_channel(request, "channel", consumer.channel),
        "ConsumerURL": links.to_consumer(request, "consumer", consumer),
        "ProducerURL": links.to(request, "producer", producer=producer.name) if producer else "",
        "JobRequeueURL": _requeue_url(request, standing),
    }


def dead_job(request: Request, standing: Standing, message: Message | None) -> dict[str, Any]:
    return {
        **job_of_message(request, standing),
        "MessageURL": _message_url(request, standing.consumer, message),
        "JobRequeueURL": _requeue_url(request, standing),
    }


def job_of_message(request: Request, standing: Standing) -> dict[str, Any]:
    return {
        "ListenerEndpoint": callback_url(request, standing.consumer),
        "ListenerName": name_of(standing.consumer),
        "Status": standing.state,
        "StatusChangedAt": times.rfc_3339(standing.since),
    }


def id_of(message: Message) -> str:
    """The client's, or the one it was given here."""
    return message.client_message_id or ids.encode(message.pk)


def _message_url(request: Request, consumer: Consumer, message: Message | None) -> str:
    if message is None:
        return ""
    return links.to_channel(request, "message", consumer.channel, message=id_of(message))


def _requeue_url(request: Request, standing: Standing) -> str:
    if standing.state != State.DEAD:
        return ""
    xid = ids.encode(standing.job_id)
    return links.to_consumer(request, "requeue-dead-job", standing.consumer, job=xid)
