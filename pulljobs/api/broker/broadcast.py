"""Route /channel/{c}/broadcast: a producer publishes a message, with options in headers."""

import re
from datetime import datetime
from typing import Any, Final

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import ids, publishing, scheduling
from pulljobs.api import exceptions, raw_bodies
from pulljobs.api.authentication import ProducerTokens, Publisher, publisher, read_header
from pulljobs.api.base_views import ProtocolView
from pulljobs.api.bodies import parse_time
from pulljobs.api.broker.links import link_in_channel
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
COST: Final = "X-Broker-Cost"
METADATA: Final = "X-Broker-Metadata-Headers"
SCHEDULED_FOR: Final = "X-Broker-Scheduled-For"
REPLACED: Final = "X-Broker-Replaced-Jobs"
HIGHEST: Final = 32_767
LONGEST_COST: Final = 9
SECRETS: Final = re.compile(
    r"x-broker-(channel-token|consumer-token|producer-token|lease-token|signature)"
    r"|authorization|proxy-.*|cookie"
)
"""Headers for the server or a proxy before it, which readers of the message must not see."""
_INTEGER: Final = re.compile(r"[+-]?([0-9]+)")


class Broadcast(ProtocolView):
    authentication_classes = [ProducerTokens]

    def post(self, request: Request, **names: str) -> Response:
        producer, at = publisher(request), _read_schedule(request)
        payload = raw_bodies.read_sent(
            request._request, settings().MAX_PAYLOAD_BYTES, "publish a reference to it"
        )
        if not payload:
            raise exceptions.empty_payload()
        try:
            with tracing.within(request.headers):
                headers = _publish(request, producer, payload, at)
        except PublishError as error:
            raise exceptions.refused(_status_of(error), error) from error
        return Response(status=201, headers=headers)


def _publish(
    request: Request, to: Publisher, payload: bytes, at: datetime | None
) -> dict[str, str]:
    """Publish a message, or schedule it for the time `at`, and return the headers of the answer."""
    arguments: dict[str, Any] = {
        "key": read_header(request.headers, KEY) or None,
        "priority": _read_priority(request),
        "cost": _read_cost(request),
        "message_id": read_header(request.headers, MESSAGE_ID) or None,
        "headers": _read_metadata(request),
        "content_type": request.META.get("CONTENT_TYPE") or validation.BYTES,
        "producer": to.producer,
    }
    if at is not None:
        id = scheduling.schedule(to.channel, payload, at, **arguments).client_message_id
        return {"Location": link_in_channel(request, "scheduled-message", to.channel, message=id)}
    receipt = publishing.publish(to.channel.name, payload, **arguments)
    id = arguments["message_id"] or ids.encode(receipt.message_id)
    headers = {"Location": link_in_channel(request, "message", to.channel, message=id)}
    if receipt.replaced:
        headers[REPLACED] = ",".join(map(ids.encode, receipt.replaced))
    return headers


def _read_schedule(request: Request) -> datetime | None:
    given = request.headers.get(SCHEDULED_FOR)
    if not given:
        return None
    try:
        at = parse_time(given)
    except ValueError as error:
        raise exceptions.unreadable_schedule() from error
    try:
        scheduling.check_time(at)
    except PublishError as error:
        raise exceptions.refused(_status_of(error), error) from error
    return at


def _read_priority(request: Request) -> int:
    """Return the priority in the header without its sign, or 0 if it is absent or no number.

    Raise a refusal (400) above 32767.
    """
    number = _INTEGER.fullmatch(request.headers.get(PRIORITY, ""))
    digits = number[1].lstrip("0") if number else ""
    if len(digits) > len(str(HIGHEST)) or int(digits or 0) > HIGHEST:
        raise exceptions.bad_field(f"{PRIORITY} must be a number from 0 to {HIGHEST}.")
    return int(digits or 0)


def _read_cost(request: Request) -> int:
    """Return the cost in the header, by default 1. Publishing checks its range.

    Raise a refusal (400) for no whole number, and for more than LONGEST_COST characters.
    """
    given = request.headers.get(COST) or "1"
    if not _INTEGER.fullmatch(given) or len(given) > LONGEST_COST:
        raise exceptions.bad_field(f"{COST} must be a whole number from 1 to 1000000.")
    return int(given)


def _read_metadata(request: Request) -> dict[str, str]:
    """Return the headers of the request that become headers of the message.

    The header X-Broker-Metadata-Headers lists their names, with commas and no spaces between them.
    Headers with secrets are omitted.
    """
    headers = request.headers
    named = read_header(headers, METADATA).split(",")
    return {
        name: read_header(headers, name)
        for name in named
        if name in headers and not _is_secret(name)
    }


def _is_secret(name: str) -> bool:
    # Django finds headers in any case, and with underscores for dashes.
    return SECRETS.fullmatch(name.replace("_", "-").lower()) is not None


def _status_of(error: PublishError) -> int:
    if isinstance(error, DuplicateMessage | DuplicateSchedule | KeyFull):
        return 409
    return {PayloadTooLarge: 413, ScheduledTooSoon: 412}.get(type(error), 400)
