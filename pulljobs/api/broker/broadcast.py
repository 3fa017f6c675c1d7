"""POST broadcast: a producer publishes, now or later."""

import re
from datetime import datetime
from typing import Any, Final

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import ids, publishing, scheduling
from pulljobs.api import exceptions, raw_bodies, times
from pulljobs.api.authentication import ProducerTokens, Publisher, publisher
from pulljobs.api.base_views import ProtocolView
from pulljobs.api.broker import links
from pulljobs.api.headers import text
from pulljobs.conf import settings
from pulljobs.engine import tracing, validation
from pulljobs.errors import (
    DuplicateMessage,
    DuplicateSchedule,
    KeyFull,
    PayloadTooLarge,
    PublishError,
    ScheduledTooSoon,
)

MESSAGE_ID: Final = "X-Broker-Message-ID"
PRIORITY: Final = "X-Broker-Message-Priority"
KEY: Final = "X-Broker-Key"
METADATA: Final = "X-Broker-Metadata-Headers"
SCHEDULED_FOR: Final = "X-Broker-Scheduled-For"
HIGHEST: Final = 32_767
SECRETS: Final = re.compile(
    r"x-broker-(channel-token|consumer-token|producer-token|lease-token|signature)"
    r"|authorization|proxy-.*|cookie"
)
"""For us, or for a proxy before us: nobody who reads the message is to have them."""
_INTEGER: Final = re.compile(r"[+-]?([0-9]{1,18})")


class Broadcast(ProtocolView):
    authentication_classes = [ProducerTokens]

    def post(self, request: Request, **names: str) -> Response:
        caller, at = publisher(request), _scheduled_for(request)
        payload = raw_bodies.read(
            request, settings().MAX_PAYLOAD_BYTES, "publish a reference to it"
        )
        if not payload:
            raise exceptions.empty_payload()
        try:
            with tracing.within(request.headers):
                location = _publish(request, caller, payload, at)
        except PublishError as error:
            raise exceptions.refused(_status_of(error), error) from error
        return Response(status=201, headers={"Location": location})


def _publish(request: Request, to: Publisher, payload: bytes, at: datetime | None) -> str:
    """The path at which the message is found."""
    said: dict[str, Any] = {
        "key": text(request.headers, KEY) or None,
        "priority": _priority(request),
        "message_id": text(request.headers, MESSAGE_ID) or None,
        "headers": _metadata(request),
        "content_type": request.META.get("CONTENT_TYPE") or validation.BYTES,
        "producer": to.producer,
    }
    if at is not None:
        id = scheduling.schedule(to.channel, payload, at, **said).client_message_id
        return links.to_channel(request, "scheduled-message", to.channel, message=id)
    receipt = publishing.publish(to.channel.name, payload, **said)
    id = said["message_id"] or ids.encode(receipt.message_id)
    return links.to_channel(request, "message", to.channel, message=id)


def _scheduled_for(request: Request) -> datetime | None:
    given = request.headers.get(SCHEDULED_FOR)
    if not given:
        return None
    try:
        at = times.parse_rfc_3339(given)
    except ValueError as error:
        raise exceptions.unreadable_schedule() from error
    try:
        scheduling.check_time(at)
    except ScheduledTooSoon as error:
        raise exceptions.refused(412, error) from error
    return at


def _priority(request: Request) -> int:
    """What can't be read counts as 0, and the sign does not count."""
    number = _INTEGER.fullmatch(request.headers.get(PRIORITY, ""))
    return min(int(number[1]), HIGHEST) if number else 0


def _metadata(request: Request) -> dict[str, str]:
    """The headers that the producer names, spelt like that, as far as they are there."""
    headers = request.headers
    named = text(headers, METADATA).split(",")
    return {name: text(headers, name) for name in named if name in headers and not _is_secret(name)}


def _is_secret(name: str) -> bool:
    # As Django looks headers up: in any case, and by underscores, too.
    return SECRETS.fullmatch(name.replace("_", "-").lower()) is not None


def _status_of(error: PublishError) -> int:
    if isinstance(error, DuplicateMessage | DuplicateSchedule | KeyFull):
        return 409
    return {PayloadTooLarge: 413, ScheduledTooSoon: 412}.get(type(error), 400)
