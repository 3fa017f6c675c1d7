"""POST broadcast-batch: many messages in one body, a JSON object a line."""

import base64
import binascii
import re
from collections.abc import Iterator
from enum import StrEnum
from itertools import islice
from typing import Any, Final, NamedTuple

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import ids
from pulljobs.api import problems, raw_bodies, serializers
from pulljobs.api.authentication import ProducerTokens, publisher
from pulljobs.api.base_views import ProblemsTold, ProtocolView
from pulljobs.conf import settings
from pulljobs.engine import tracing
from pulljobs.errors import InvalidMessage, PayloadTooLarge, PublishError
from pulljobs.publishing import Draft, Receipt, checked, publish_many

FILLED: Final = re.compile(rb"\S[^\n]*")


class Status(StrEnum):
    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    KEY_FULL = "key_full"
    INVALID = "invalid"
    TOO_LARGE = "too_large"


class Line(NamedTuple):
    """`draft` None: it is refused, for what `error` says."""

    number: int
    draft: Draft | None
    status: Status = Status.ACCEPTED
    error: str | None = None


class BroadcastBatch(ProblemsTold, ProtocolView):
    authentication_classes = [ProducerTokens]

    def post(self, request: Request, **names: str) -> Response:
        to = publisher(request)
        lines = list(_lines(raw_bodies.decoded(request._request, settings().MAX_BATCH_BYTES)))
        drafts = [line.draft for line in lines if line.draft is not None]
        with tracing.within(request.headers):
            receipts = iter(publish_many(to.channel.name, drafts, producer=to.producer))
        told = [
            _refused(line) if line.draft is None else _receipt(line, line.draft, next(receipts))
            for line in lines
        ]
        return Response({"Results": told})


def _lines(body: bytes) -> Iterator[Line]:
    most = settings().MAX_BATCH
    filled = list(islice(_filled(body), most + 1))
    if len(filled) > most:
        raise problems.too_many_lines(most)
    for number, line in filled:
        try:
            draft = _draft(serializers.json_object(line, InvalidMessage))
            checked(draft, settings())
            yield Line(number, draft)
        except PayloadTooLarge as error:
            yield Line(number, None, Status.TOO_LARGE, str(error))
        except PublishError as error:
            yield Line(number, None, Status.INVALID, str(error))


def _filled(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Empty lines count, and are left out; never a list of all, for a body may have millions."""
    number, counted = 1, 0
    for line in FILLED.finditer(body):
        number += body.count(b"\n", counted, line.start())
        counted = line.start()
        yield number, line[0]


def _draft(given: dict[str, Any]) -> Draft:
    return Draft(
        payload=_payload(given),
        key=given.get("key"),
        priority=given.get("priority", 0),
        message_id=given.get("messageid"),
        headers={} if given.get("headers") is None else given["headers"],
        content_type=given.get("contenttype"),
    )


def _payload(given: dict[str, Any]) -> bytes | str:
    """Text, or bytes in base64; exactly one of the two."""
    text, encoded = given.get("payload"), given.get("payloadbase64")
    if (text is None) == (encoded is None):
        raise InvalidMessage("A line has either Payload or PayloadBase64: give one of them.")
    if not isinstance(text or encoded, str) or not (text or encoded):
        raise InvalidMessage("Payload and PayloadBase64 are text, and not empty.")
    if encoded is None:
        return str(text)
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidMessage(f"PayloadBase64 is not base64: {error}.") from error


def _receipt(line: Line, draft: Draft, receipt: Receipt) -> dict[str, Any]:
    """A message that was not taken has no id but its producer's."""
    if receipt.key_full:
        return {"Line": line.number, "MessageID": draft.message_id, "Status": Status.KEY_FULL}
    status = Status.DUPLICATE if receipt.duplicate else Status.ACCEPTED
    id = draft.message_id or ids.encode(receipt.message_id)
    return {"Line": line.number, "MessageID": id, "Status": status}


def _refused(line: Line) -> dict[str, Any]:
    return {"Line": line.number, "MessageID": None, "Status": line.status, "Error": line.error}
