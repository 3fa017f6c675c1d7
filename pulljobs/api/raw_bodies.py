"""Reading of request bodies as bytes, with limits of size and without parsers of Django or DRF."""

import zlib
from io import SEEK_CUR, BytesIO

from django.core.exceptions import TooManyFieldsSent
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest, QueryDict, UnreadablePostError
from rest_framework.request import Request

from pulljobs.api import exceptions

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"
LARGEST_FORM = 16 * 1024
SEND_LESS = "send less at a time"
ENCODING = "HTTP_CONTENT_ENCODING"
"""Key of the header Content-Encoding in `request.META`."""
GZIP = 16 + zlib.MAX_WBITS
MOST_MEMBERS = 100
CHUNKED = "chunked"
CUT_SHORT = "The connection ended before the body did, or a middleware has read the body"
NO_LENGTH = "This server decodes no chunked body: send Content-Length"
PART = 16 * 1024
"""Bytes that are decompressed at a time, so that little is copied after the end of a member."""


def refuse_foreign_form(request: Request) -> None:
    """Raise a refusal (415) if a browser sends another Content-Type than JSON (against CSRF).

    A page of another site can make a browser send a form with its user's login, but not JSON.
    Browsers are recognised by the header Origin. The Content-Type of other clients is ignored.
    """
    content_type = request.META.get("CONTENT_TYPE", "").partition(";")[0].strip().lower()
    if "Origin" in request.headers and content_type != JSON:
        raise exceptions.not_json()


def read_decompressed(request: HttpRequest, largest: int, advice: str = SEND_LESS) -> bytes:
    """Return the body, decompressed if it has a Content-Encoding.

    Raise a refusal: 413, with this advice, if it has more than `largest` bytes, compressed or
    decompressed, and 400 as `read_up_to` and `decompress` do.
    """
    return decompress(request, read_sent(request, largest, advice), largest, advice)


def read_sent(request: HttpRequest, largest: int, advice: str = SEND_LESS) -> bytes:
    """Return the body as it was sent, whatever its Content-Type.

    Raise a refusal: 413, with this advice, if it has more than `largest` bytes, and 400 as
    `read_up_to` does.
    """
    body = read_up_to(request, largest + 1)
    if len(body) > largest:
        raise exceptions.too_large(largest, advice)
    return body


def read_up_to(request: HttpRequest, most: int) -> bytes:
    """Read the body, or its first `most` bytes if it is larger.

    Raise a refusal (400) if the connection ended before the body did, and for a chunked body that
    the server does not decode. Under WSGI, Django takes the first for whole, the second for empty.
    """
    length = 0 if _open_chunked(request) else _length_of(request)
    try:
        body: bytes = request.read(most)
    except UnreadablePostError as error:
        raise exceptions.bad_body(CUT_SHORT) from error
    if len(body) < min(length, most):
        raise exceptions.bad_body(CUT_SHORT)
    return body


def _open_chunked(request: HttpRequest) -> bool:
    """Return True for a chunked body under WSGI, and make `request.read` read it.

    Django takes such a body for empty. Raise a refusal (400) if the server does not decode it. A
    body that was read before, for example by the gateway, stays as it is.
    """
    meta = request.META
    coding = meta.get("HTTP_TRANSFER_ENCODING", "").lower()
    if not isinstance(request, WSGIRequest) or CHUNKED not in coding:
        return False
    if not meta.get("wsgi.input_terminated"):
        raise exceptions.bad_body(NO_LENGTH)
    if not getattr(request, "_body", b""):  # It is empty after a look of a middleware.
        request._stream = meta["wsgi.input"]
    return True


def _length_of(request: HttpRequest) -> int:
    """Return the Content-Length, or 0 if there is none or it is no number."""
    try:
        return int(request.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        return 0


def decompress(request: HttpRequest, body: bytes, largest: int, advice: str = SEND_LESS) -> bytes:
    """Return a body decompressed by the request's Content-Encoding, which is gzip or none.

    Raise a refusal: 413 if the result is above `largest` bytes, 400 for another encoding or damaged
    data. Views call this after authentication, and not on the event loop, because it may take long.
    """
    coding = request.META.get(ENCODING, "identity").lower()
    if coding not in ("gzip", "identity"):
        raise exceptions.bad_body("Content-Encoding must be gzip or left out")
    if coding == "gzip":
        body = _gunzip(body, largest)
    if len(body) > largest:
        raise exceptions.too_large(largest, advice)
    return body


def _gunzip(body: bytes, largest: int) -> bytes:
    """Decompress all members of a gzip file, but stop one byte above the largest size.

    Raise a refusal (400) for damaged data, and for more than MOST_MEMBERS members.
    """
    packed, plain = BytesIO(body), bytearray()
    for _ in range(MOST_MEMBERS):
        _add_member(packed, plain, largest + 1)
        if len(plain) > largest or packed.tell() == len(body):
            return bytes(plain)
    raise exceptions.bad_body(f"The body has more than {MOST_MEMBERS} members of gzip")


def _add_member(packed: BytesIO, plain: bytearray, most: int) -> None:
    unpacking = zlib.decompressobj(GZIP)
    while not unpacking.eof and len(plain) < most:
        part = packed.read(PART)
        if not part:
            raise exceptions.bad_body("The body is cut short")
        try:
            plain += unpacking.decompress(part, most - len(plain))
        except zlib.error as error:
            raise exceptions.bad_body("The body is not gzip") from error
    packed.seek(-len(unpacking.unused_data), SEEK_CUR)


def read_form(request: Request, *, or_json: bool = False) -> QueryDict:
    """Return the fields of a URL-encoded form. Raise a refusal (415) for another Content-Type.

    With `or_json` the refusal says that the route takes JSON as well.
    """
    if request.META.get("CONTENT_TYPE", "").partition(";")[0] != FORM:
        raise exceptions.not_a_form(", or JSON" if or_json else "")
    body = read_decompressed(request._request, LARGEST_FORM, "send shorter fields")
    try:
        return QueryDict(body, encoding="utf-8")
    except TooManyFieldsSent as error:
        raise exceptions.bad_field("The form has too many fields: send fewer.") from error
