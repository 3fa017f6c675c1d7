"""`X-Request-ID` on every response of the site and in every log line.

An id of the caller is echoed if it fits in a header, and replaced by a new one if it does not.
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
    """Set `X-Request-ID` on every response, also on errors and unknown paths, and in log lines.

    Put it first. Handlers of logs get the id from the filter `RequestIdFilter`.
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
    """Return the id of a request, and give it a new one if it has none that can be echoed."""
    given: str = request.META.get(_META, "")
    if not _ECHOED.fullmatch(given):
        given = request.META[_META] = _make_id()
    return given


def _make_id() -> str:
    # Not a secret. `uuid4` reads from the system, which costs a busy thread its turn.
    return f"{random.getrandbits(128):032x}"


class RequestIdFilter(logging.Filter):
    """Filter that sets `request_id` of every log record. It is "-" outside of requests."""

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
