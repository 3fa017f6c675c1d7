"""Display of payloads by their content type, in ways in which a browser never runs their code."""

import codecs
import json
from datetime import datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from django.db.models import BinaryField, F, Func, IntegerField, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.templatetags.static import static

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.models import ArchivedJob, Job, Message

SHOWN_BYTES: Final = 64 * 1024
SHOWN_BINARY_BYTES: Final = 512
INDENTED_BYTES: Final = 8 * SHOWN_BYTES
"""Largest size of indented JSON in bytes: indenting deep nesting can multiply it by hundreds."""
INDENTING: Final = json.JSONEncoder(indent=2, ensure_ascii=False)
A_LINE: Final = 16
PERMISSION: Final = "pulljobs.view_message"
"""Permission to see payloads and headers, as in the API."""
FACTS: Final = ("client_message_id", "key", "published_at", "content_type")
"""Fields that users without the permission see as well."""
IMAGES: Final = {
    "image/png": b"\x89PNG",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}
"""Image types that browsers draw without running anything, with their first bytes."""
PAGE_POLICY: Final = (
    "default-src 'self'{static}; img-src 'self'{static} data:; object-src 'none'; base-uri 'none';"
    " form-action 'self'; frame-ancestors 'none'"
)
PAYLOAD_POLICY: Final = "default-src 'none'; sandbox"


class ShownContent(NamedTuple):
    """Headers and payload of a message as a page shows them."""

    headers: list[tuple[str, str]]
    kind: str
    """Kind of the payload: `JSON`, `text`, `image` or `binary`."""
    text: str
    """Payload or its beginning: indented, unchanged or in hex."""
    cut: bool
    """True if `text` is only the beginning."""


class ShownMessage(NamedTuple):
    """Message as the page of its job shows it."""

    id: int
    xid: str
    client_message_id: str | None
    key: str | None
    published_at: datetime
    content_type: str
    size: int
    """Bytes of the payload."""
    content: ShownContent | None
    """Content, or None if the user may not see it."""


def may_read(request: HttpRequest) -> bool:
    """Return True if the user has the permission to see payloads and headers."""
    return request.user.has_perm(PERMISSION)


def page_policy() -> str:
    """Return the CSP of pages with payloads: only the site, static files and inline images load."""
    where = urlsplit(static("pulljobs/admin.css"))
    origin = f"{where.scheme}://{where.netloc}" if where.scheme else where.netloc
    return PAGE_POLICY.format(static=f" {origin}" if origin else "")


def message_of(row: Job | ArchivedJob, *, readable: bool) -> ShownMessage | None:
    """Return the message of a job, or None if its partition was dropped.

    Without `readable` its content is None, and payload and headers are not read.
    """
    rows = _readable() if readable else _facts()
    message = rows.filter(pk=row.message_id).first()
    if message is None:
        return None
    return ShownMessage(
        message.pk,
        ids.encode(message.pk),
        message.client_message_id,
        message.key,
        message.published_at,
        message.content_type,
        message.size,
        _content(message) if readable else None,
    )


def content_of(rows: QuerySet[Any], pk: int) -> ShownContent | None:
    """Return the content of a message or a scheduled message by its id, or None if it is gone."""
    message = _with_head(_with_size(rows)).filter(pk=pk).first()
    return None if message is None else _content(message)


def answer_payload(request: HttpRequest, message_id: int) -> HttpResponse:
    """Answer with a payload: an image to display unless `save` is asked for, else a download."""
    message = Message.objects.using(settings().DATABASE).filter(pk=message_id).first()
    if message is None:
        raise Http404
    payload = bytes(message.payload)
    kind = _type(message.content_type)
    drawn = _is_image(kind, payload) and "save" not in request.GET
    response = HttpResponse(payload, kind if drawn else "application/octet-stream")
    if not drawn:
        response["Content-Disposition"] = f'attachment; filename="{ids.encode(message_id)}"'
    response["Content-Security-Policy"] = PAYLOAD_POLICY
    response["X-Content-Type-Options"] = "nosniff"
    return response


def _content(message: Any) -> ShownContent:
    head = bytes(message.head)
    kind, text = _shown(message.content_type, head, whole=message.size <= SHOWN_BYTES)
    shown = SHOWN_BYTES if kind in {"JSON", "text"} else SHOWN_BINARY_BYTES
    return ShownContent(list(message.headers.items()), kind, text, message.size > shown)


def _shown(content_type: str, head: bytes, *, whole: bool) -> tuple[str, str]:
    if _is_image(_type(content_type), head):
        return "image", _dump(head[:SHOWN_BINARY_BYTES])
    text = _text(head, whole=whole)
    if text is None:
        return "binary", _dump(head[:SHOWN_BINARY_BYTES])
    kind = _type(content_type)
    if whole and (kind == "application/json" or kind.endswith("+json")):
        return _indented(text)
    return "text", text


def _type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _is_image(kind: str, payload: bytes) -> bool:
    """Return True if content type and first bytes are those of the same image format."""
    return kind in IMAGES and payload.startswith(IMAGES[kind])


def _indented(text: str) -> tuple[str, str]:
    """Return "JSON" and the indented text, or "text" and the text if it is no JSON or too long."""
    pieces: list[str] = []
    room = INDENTED_BYTES
    try:
        for piece in INDENTING.iterencode(json.loads(text)):
            room -= len(piece.encode())
            if room < 0:
                return "text", text
            pieces.append(piece)
    except (ValueError, RecursionError):
        return "text", text
    return "JSON", "".join(pieces)


def _dump(data: bytes) -> str:
    """Return lines with the offset, the hex codes and the letters of 16 bytes, as `hexdump -C`."""
    lines = []
    for start in range(0, len(data), A_LINE):
        row = data[start : start + A_LINE]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<{A_LINE * 3}} {letters}")
    return "\n".join(lines)


def _facts() -> QuerySet[Any]:
    return _with_size(Message.objects.using(settings().DATABASE)).only(*FACTS)


def _readable() -> QuerySet[Any]:
    return _with_head(_facts()).only(*FACTS, "headers")


def _with_size(rows: QuerySet[Any]) -> QuerySet[Any]:
    size = Func(F("payload"), function="octet_length", output_field=IntegerField())
    sized: QuerySet[Any] = rows.annotate(size=size).defer("payload")
    return sized


def _with_head(rows: QuerySet[Any]) -> QuerySet[Any]:
    head = Func(F("payload"), 1, SHOWN_BYTES, function="substring", output_field=BinaryField())
    headed: QuerySet[Any] = rows.annotate(head=head)
    return headed


def _text(head: bytes, *, whole: bool) -> str | None:
    """Decode the beginning of a payload, or a `whole` one, as UTF-8, or return None if binary.

    A letter that is cut off at the end is left out.
    """
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head, final=whole)
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else text
