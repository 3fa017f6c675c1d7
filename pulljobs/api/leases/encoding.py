"""Encoding of the answers to pulls, acks and renewals as JSON, faster than `json.dumps`."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from json.encoder import encode_basestring_ascii as quote
from typing import Any, Final

from django.http import HttpResponse

from pulljobs.api.leases.bodies import PulledJobBody

LARGE_ANSWER: Final = 1024 * 1024
"""Number of characters of payloads above which encoding takes milliseconds."""
_ENCODER: Final = json.JSONEncoder(check_circular=False)


async def encode_answer(body: Mapping[str, Any]) -> HttpResponse:
    """Return an answer with this body as JSON.

    A large body is encoded on a thread, so that other requests of the event loop do not wait.
    """
    is_large = _payload_size(body) > LARGE_ANSWER
    content = await asyncio.to_thread(_encode_in_pieces, body) if is_large else _encode(body)
    return HttpResponse(content, content_type="application/json")


def _payload_size(body: Mapping[str, Any]) -> int:
    return sum(len(job["Message"]["Payload"]) for job in body.get("Result", ()))


def _encode_in_pieces(body: Mapping[str, Any]) -> bytes:
    """Return a body as JSON, encoded in pieces so that other threads get the GIL in between."""
    content = BytesIO()
    for piece in _ENCODER.iterencode(body):
        content.write(piece.encode())
    return content.getvalue()


def _encode(body: Mapping[str, Any]) -> str:
    values = (
        f"{quote(name)}: {_encode_jobs(value) if name == 'Result' else _ENCODER.encode(value)}"
        for name, value in body.items()
    )
    return f"{{{', '.join(values)}}}"


def _encode_jobs(jobs: Sequence[PulledJobBody]) -> str:
    return f"[{', '.join(map(_encode_job, jobs))}]"


def _encode_job(job: PulledJobBody) -> str:
    """Return a job as JSON, by a template of its known fields.

    A general encoder, which looks at each key and type, would take most of the time of a pull.
    """
    message, key = job["Message"], job["Key"]
    encoding, headers = message["PayloadEncoding"], message["Headers"]
    return (
        f'{{"ID": "{job["ID"]}", "Priority": {job["Priority"]}'
        f', "RetryCount": {job["RetryCount"]}, "Deliveries": {job["Deliveries"]}'
        f', "Key": {"null" if key is None else quote(key)}, "LeaseToken": "{job["LeaseToken"]}"'
        f', "LeaseExpiresAt": "{job["LeaseExpiresAt"]}", "LeaseSeconds": {job["LeaseSeconds"]}'
        f', "Message": {{"MessageID": {quote(message["MessageID"])}'
        f', "PayloadEncoding": {"null" if encoding is None else quote(encoding)}'
        f', "Payload": {quote(message["Payload"])}'
        f', "ContentType": {quote(message["ContentType"])}'
        f', "Headers": {_ENCODER.encode(headers) if headers else "{}"}'
        f', "PublishedAt": "{message["PublishedAt"]}"}}}}'
    )
