"""Route broadcast-batch: a producer publishes many messages, each a line of JSON in the body."""

import base64
import binascii
import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple, cast

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import ids
from pulljobs.api import exceptions, raw_bodies
from pulljobs.api.authentication import ProducerTokens, publisher
from pulljobs.api.base_views import ProblemMixin, ProtocolView
from pulljobs.api.bodies import fields_of
from pulljobs.api.leases.bodies import AcceptedBody, AcceptedLinesBody, LineBody, LineStatus
from pulljobs.api.reading import GivenFields, read_object, refuse_unknown
from pulljobs.conf import settings
from pulljobs.engine import tracing
from pulljobs.errors import InvalidMessage, PayloadTooLarge, PublishError
from pulljobs.publishing import Draft, Receipt, checked, publish_many

FILLED: Final = re.compile(rb"\S[^\n]*")
ADVICE: Final = "publish fewer messages at a time, or raise PULLJOBS['MAX_BATCH_BYTES']"


class BatchLine(NamedTuple):
    """Line of the body: a message to publish, or None and the error for which it is refused."""

    number: int
    draft: Draft | None
    status: LineStatus = LineStatus.ACCEPTED
    error: str | None = None


class BroadcastBatch(ProblemMixin, ProtocolView):
    authentication_classes = [ProducerTokens]

    def post(self, request: Request, **names: str) -> Response:
        to = publisher(request)
        largest = settings().MAX_BATCH_BYTES
        sent = raw_bodies.read_decompressed(request._request, largest, ADVICE)
        lines = list(_read_lines(sent))
        drafts = [line.draft for line in lines if line.draft is not None]
        with tracing.within(request.headers):
            receipts = iter(publish_many(to.channel.name, drafts, producer=to.producer))
        body: AcceptedLinesBody = {
            "Results": [
                _render_refused(line)
                if line.draft is None
                else _render_receipt(line, line.draft, next(receipts))
                for line in lines
            ]
        }
        return Response(body)


def _read_lines(body: bytes) -> Iterator[BatchLine]:
    most = settings().MAX_BATCH
    filled = list(islice(_filled_lines(body), most + 1))
    if len(filled) > most:
        raise exceptions.too_many_lines(most)
    for number, line in filled:
        try:
            draft = _to_draft(_pick_fields(read_object(line, _no_object)))
            checked(draft, settings())
            yield BatchLine(number, draft)
        except PayloadTooLarge as error:
            yield BatchLine(number, None, LineStatus.TOO_LARGE, str(error))
        except PublishError as error:
            yield BatchLine(number, None, LineStatus.INVALID, str(error))


def _no_object(problem: str) -> InvalidMessage:
    """Return the error for a line that is no JSON object: `problem`, with "line" for "body"."""
    return InvalidMessage(f"{problem.replace('body', 'line')}: send one JSON object a line.")


def _filled_lines(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, each with its number among all lines, from 1 on."""
    number, counted = 1, 0
    for line in FILLED.finditer(body):
        number += body.count(b"\n", counted, line.start())
        counted = line.start()
        yield number, line[0]


def _pick_fields(given: GivenFields) -> LineBody:
    """Return the unchecked values of a line by the names of its fields.

    A field with null is left out if it may be null. Raise InvalidMessage for an unknown field.
    """
    refuse_unknown(LineBody, given, InvalidMessage)
    picked = {
        field.name: given[field.key]
        for field in fields_of(LineBody)
        if field.key in given and not (field.is_nullable and given[field.key] is None)
    }
    return cast("LineBody", picked)


def _to_draft(given: LineBody) -> Draft:
    headers = given.get("Headers")
    return Draft(
        payload=_read_payload(given),
        key=given.get("Key"),
        priority=given.get("Priority", 0),
        cost=given.get("Cost", 1),
        message_id=given.get("MessageID"),
        headers={} if headers is None else headers,
        content_type=given.get("ContentType"),
    )


def _read_payload(given: LineBody) -> bytes | str:
    """Return the payload of a line: text, or the bytes of a base64 text.

    Raise InvalidMessage if the line has both or neither, or a value that is empty, no text, or no
    base64.
    """
    text, encoded = given.get("Payload"), given.get("PayloadBase64")
    if (text is None) == (encoded is None):
        raise InvalidMessage("A line needs either Payload or PayloadBase64: give one of them.")
    if not isinstance(text or encoded, str) or not (text or encoded):
        raise InvalidMessage("Payload and PayloadBase64 must be text that is not empty.")
    if encoded is None:
        return str(text)
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidMessage(f"PayloadBase64 is not base64: {error}.") from error


def _render_receipt(line: BatchLine, draft: Draft, receipt: Receipt) -> AcceptedBody:
    """Render the result of publishing a line.

    If the message was not written because its key is full, the id in the result is the client
    message id or null.
    """
    if receipt.key_full:
        return {"Line": line.number, "MessageID": draft.message_id, "Status": LineStatus.KEY_FULL}
    status = LineStatus.DUPLICATE if receipt.duplicate else LineStatus.ACCEPTED
    id = draft.message_id or ids.encode(receipt.message_id)
    body: AcceptedBody = {"Line": line.number, "MessageID": id, "Status": status}
    if receipt.replaced:
        body["ReplacedJobs"] = list(map(ids.encode, receipt.replaced))
    return body


def _render_refused(line: BatchLine) -> AcceptedBody:
    error = line.error or ""
    return {"Line": line.number, "MessageID": None, "Status": line.status, "Error": error}
