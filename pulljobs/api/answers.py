"""Answers of part B as JSON: large ones on a thread, for others share the event loop."""

import asyncio
from io import BytesIO
from typing import Any, Final

from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpResponse, JsonResponse

LARGE: Final = 1024 * 1024
"""Characters of payloads: what takes milliseconds."""


async def as_json(answer: dict[str, Any]) -> HttpResponse:
    if _size(answer) <= LARGE:
        return JsonResponse(answer)
    content = await asyncio.to_thread(_encoded, answer)
    return HttpResponse(content, content_type="application/json")


def _size(answer: dict[str, Any]) -> int:
    return sum(len(job["Message"]["Payload"]) for job in answer.get("Result", ()))


def _encoded(answer: dict[str, Any]) -> bytes:
    """Piece by piece: at once, other threads would stand still until all is done."""
    content = BytesIO()
    for piece in DjangoJSONEncoder().iterencode(answer):
        content.write(piece.encode())
    return content.getvalue()
