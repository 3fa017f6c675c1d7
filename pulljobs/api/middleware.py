"""Middleware that gives every request an id, for the header `X-Request-ID` and for log lines.

An id that the caller sends in that header is kept if it has 1 to 200 printable ASCII characters.
"""

import logging
import random
import re
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final, cast

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

REQUEST_ID: Final = "X-Request-ID"
_META: Final = "HTTP_X_REQUEST_ID"
_ECHOED: Final = re.compile(r"[\x20-\x7e]{1,200}")

current_id: ContextVar[str] = ContextVar("pulljobs_request_id", default="-")


@sync_and_async_middleware
def request_id(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Set the id of each request as `X-Request-ID` on its response, and as `current_id`.

    Put this middleware first, so that errors and unknown paths have the header as well. Log lines
    get the id from `RequestIdFilter`.
    """
    if iscoroutinefunction(get_response):
        return _make_async(get_response)

    def answer(request: HttpRequest) -> HttpResponseBase:
        token = current_id.set(ensure_id(request))
        try:
            return _with_id(request, cast("HttpResponseBase", get_response(request)))
        finally:
            current_id.reset(token)

    return answer


def ensure_id(request: HttpRequest) -> str:
    """Return the id of a request. Make a new id if the caller sent none that can be kept."""
    given: str = request.META.get(_META, "")
    if not _ECHOED.fullmatch(given):
        given = request.META[_META] = _make_id()
    return given


def _make_id() -> str:
    # Not a secret. `uuid4` reads from the system, which costs a busy thread its turn.
    return f"{random.getrandbits(128):032x}"


class RequestIdFilter(logging.Filter):
    """Logging filter that sets `request_id` of every record: an id, or "-" outside of requests."""

    def filter(self, record: logging.LogRecord) -> bool:
        request = getattr(record, "request", None)
        if isinstance(request, HttpRequest):
            record.request_id = ensure_id(request)
        else:
            record.request_id = current_id.get()
        return True


def _make_async(
    get_response: Callable[[HttpRequest], Awaitable[HttpResponseBase]],
) -> Callable[[HttpRequest], Awaitable[HttpResponseBase]]:
    async def answer(request: HttpRequest) -> HttpResponseBase:
        token = current_id.set(ensure_id(request))
        try:
            return _with_id(request, await get_response(request))
        finally:
            current_id.reset(token)

    return answer


def _with_id(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    response[REQUEST_ID] = ensure_id(request)
    return response
