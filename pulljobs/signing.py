"""Signatures of push deliveries by the specification Standard Webhooks, and their verification.

    # in the receiver, which needs nothing else of pulljobs
    from pulljobs.signing import InvalidSignature, verify

    try:
        verify("whsec_...", request.headers, request.body)
    except InvalidSignature:
        return HttpResponse(status=401)

The signature covers the id, the time and the body: `HMAC-SHA256(secret, "id.timestamp.body")`, in
base64. While a secret is being replaced, a delivery has a signature by the old and by the new one.

`sign_for_gateway` signs requests to the HTTP API, which have another form of signature.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets as random
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

ID: Final = "webhook-id"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"
PREFIX: Final = "whsec_"
VERSION: Final = "v1"
TOLERANCE: Final = timedelta(minutes=5)
SECRET_BYTES: Final = 32
SHORTEST: Final = 16
SECONDS: Final = re.compile(r"[0-9]{1,12}")


class InvalidSignature(ValueError):
    """Error for a request without a valid signature, or with a time too far from now."""


def new_secret() -> str:
    """Return a new random signing secret."""
    return PREFIX + base64.b64encode(random.token_bytes(SECRET_BYTES)).decode()


def sign(
    secrets: Sequence[str], id: str, body: bytes, *, timestamp: int | None = None
) -> dict[str, str]:
    """Return the three headers of a delivery, with a signature by each secret.

    `id` is the same at every attempt of a delivery. `timestamp` is Unix time, by default now. Raise
    ValueError for a text that is no secret.
    """
    at = int(time.time()) if timestamp is None else timestamp
    signed = " ".join(f"{VERSION},{_signature(secret, id, at, body)}" for secret in secrets)
    return {ID: id, TIMESTAMP: str(at), SIGNATURE: signed}


def verify(
    secrets: str | Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    tolerance: timedelta = TOLERANCE,
    now: float | None = None,
) -> str:
    """Return the id of the delivery, by which a receiver recognises a repeated delivery.

    `headers` are as received, in any case. `body` is bytes, before anything parsed it. Raise
    InvalidSignature if no signature is by one of these secrets, or if the time differs by more than
    `tolerance` in either direction. Raise ValueError for a text that is no secret.
    """
    known = {name.lower(): value for name, value in headers.items()}
    id, at, given = (known.get(name, "") for name in (ID, TIMESTAMP, SIGNATURE))
    if not (id.isascii() and SECONDS.fullmatch(at) and given.isascii()):
        raise InvalidSignature(f"The request has no {ID}, {TIMESTAMP} and {SIGNATURE}.")
    timestamp = int(at)
    if abs((time.time() if now is None else now) - timestamp) > tolerance.total_seconds():
        raise InvalidSignature("It was signed too long ago or too far ahead: compare the clocks.")
    candidates = [secrets] if isinstance(secrets, str) else secrets
    expected = [_signature(secret, id, timestamp, body) for secret in candidates]
    if not _agree(expected, given):
        raise InvalidSignature("No signature is by this secret: use that of the consumer.")
    return id


def _agree(expected: Sequence[str], given: str) -> bool:
    """Return True if the header `given` has one of the expected signatures, in constant time.

    Its entries, separated by spaces, are a version, a comma and a signature. Those of other
    versions are ignored.
    """
    entries = [entry.partition(",") for entry in given.split()]
    signatures = [value for version, _comma, value in entries if version == VERSION]
    pairs = ((ours.encode(), theirs.encode()) for ours in expected for theirs in signatures)
    return any(hmac.compare_digest(ours, theirs) for ours, theirs in pairs)


def _signature(secret: str, id: str, timestamp: int, body: bytes) -> str:
    signed = b".".join((id.encode(), str(timestamp).encode(), body))
    return base64.b64encode(hmac.digest(_key(secret), signed, hashlib.sha256)).decode()


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"A signing secret is {PREFIX} and base64.") from None
    if len(key) < SHORTEST:
        raise ValueError(f"A signing secret has {SHORTEST} bytes at least.")
    return key


def sign_for_gateway(secret: str, seconds: str, body: bytes) -> str:
    """Return the signature of a request for the gateway of the HTTP API, as hex digits.

    `secret` is base64, and `seconds` the Unix time as the header has it. Raise ValueError for a
    text that can't be decoded.
    """
    return hmac.new(base64.b64decode(secret), seconds.encode() + b"." + body, "sha256").hexdigest()
