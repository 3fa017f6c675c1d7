from collections.abc import Sequence
from typing import Any, Final

from rest_framework.request import Request

from pulljobs import ids
from pulljobs.api import times
from pulljobs.api.resources.jobs import id_of, job_of_message
from pulljobs.api.resources.registry import name_of
from pulljobs.api.serializers import payload_fields
from pulljobs.models import Message, ScheduledMessage
from pulljobs.storage.published import Standing

DISPATCHED: Final = 102
"""Of every message, for its jobs are made with it; of a scheduled one that had its time."""
ACKNOWLEDGED: Final = 101
"""Of scheduled ones only, called SCHEDULED there."""


def message(request: Request, message: Message, standings: Sequence[Standing]) -> dict[str, Any]:
    published_at = times.rfc_3339(message.published_at)
    return {
        "ID": id_of(message),
        **payload_fields(bytes(message.payload)),
        "ContentType": message.content_type,
        "ProducedBy": name_of(message.producer) if message.producer else "",
        "ReceivedAt": published_at,
        "DispatchedAt": published_at,
        "Status": "DISPATCHED",
        "Jobs": [job_of_message(request, one) for one in standings],
        "Headers": message.headers,
    }


def scheduled_message(message: ScheduledMessage) -> dict[str, Any]:
    dispatched_at = message.dispatched_at
    payload = payload_fields(bytes(message.payload))
    return {
        "id": ids.encode(message.pk),
        "messageId": message.client_message_id,
        "contentType": message.content_type,
        "priority": message.priority,
        "producedBy": message.producer.name if message.producer else "",
        "dispatchSchedule": times.rfc_3339(message.dispatch_at),
        "dispatchedAt": times.rfc_3339(dispatched_at) if dispatched_at else None,
        "status": "DISPATCHED" if dispatched_at else "SCHEDULED",
        **{key[0].lower() + key[1:]: value for key, value in payload.items()},
        "headers": message.headers,
    }
