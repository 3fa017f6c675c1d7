"""Bodies as they come: read before any parser touches them."""

import zlib
from io import SEEK_CUR, BytesIO

from django.core.exceptions import TooManyFieldsSent
from django.http import HttpRequest, QueryDict
from rest_framework.request import Request

from pulljobs.api import exceptions, problems

FORM = "application/x-www-form-urlencoded"
LARGEST_FORM = 16 * 1024
GZIP = 16 + zlib.MAX_WBITS
MOST_MEMBERS = 100
PART = 16 * 1024
"""Read at once: no more than that is copied after the end of a member."""


def read(request: Request, largest: int, advice: str) -> bytes:
    """The whole body, whatever its Content-Type; 413, with the advice, if it is larger."""
    body: bytes = request._request.read(largest + 1)
    if len(body) > largest:
        raise exceptions.too_large(largest, advice)
    return body


def decoded(request: HttpRequest, largest: int) -> bytes:
    """A body of part B, decompressed if it was sent so; 413 if it is larger, either way."""
    return unpacked(request, sent(request, largest), largest)


def sent(request: HttpRequest, largest: int) -> bytes:
    """As it came."""
    body: bytes = request.read(largest + 1)
    if len(body) > largest:
        raise problems.body_too_large(largest)
    return body


def unpacked(request: HttpRequest, body: bytes, largest: int) -> bytes:
    """What was sent, decompressed if it has to be: not for strangers, nor on the event loop."""
    coding = request.headers.get("Content-Encoding", "identity").lower()
    if coding not in ("gzip", "identity"):
        raise problems.bad_body("Content-Encoding must be gzip or left out")
    if coding == "gzip":
        body = _gunzipped(body, largest)
    if len(body) > largest:
        raise problems.body_too_large(largest)
    return body


def _gunzipped(body: bytes, largest: int) -> bytes:
    """All members; no more than a byte above the largest, however much it would be."""
    packed, plain = BytesIO(body), bytearray()
    for _ in range(MOST_MEMBERS):
        _add_member(packed, plain, largest + 1)
        if len(plain) > largest or packed.tell() == len(body):
            return bytes(plain)
    raise problems.bad_body(f"The body has more than {MOST_MEMBERS} members of gzip")


def _add_member(packed: BytesIO, plain: bytearray, most: int) -> None:
    unpacking = zlib.decompressobj(GZIP)
    while not unpacking.eof and len(plain) < most:
        part = packed.read(PART)
        if not part:
            raise problems.bad_body("The body is cut short")
        try:
            plain += unpacking.decompress(part, most - len(plain))
        except zlib.error as error:
            raise problems.bad_body("The body is not gzip") from error
    packed.seek(-len(unpacking.unused_data), SEEK_CUR)


def form(request: Request) -> QueryDict:
    """Fields of a form; 415 for what is none."""
    if request.META.get("CONTENT_TYPE", "").partition(";")[0] != FORM:
        raise exceptions.not_a_form()
    body = read(request, LARGEST_FORM, "send shorter fields")
    try:
        return QueryDict(body, encoding="utf-8")
    except TooManyFieldsSent as error:
        raise exceptions.bad_field("The form has too many fields: send fewer.") from error
