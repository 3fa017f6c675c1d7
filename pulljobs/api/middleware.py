"""What has to see every request of the site, also those that reach no view."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from pulljobs.api import request_ids


@sync_and_async_middleware
def request_id(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """`X-Request-ID` on every response, errors and unknown paths among them, and in every log line.

    Put it first; handlers of logs take the id from the filter `pulljobs.api.request_ids.InLogs`.
    """
    if iscoroutinefunction(get_response):
        return _async(get_response)

    def answer(request: HttpRequest) -> HttpResponseBase:
        token = request_ids.current.set(request_ids.of(request))
        try:
            return _with_id(request, cast("HttpResponseBase", get_response(request)))
        finally:
            request_ids.current.reset(token)

    return answer


def _async(
    get_response: Callable[[HttpRequest], Awaitable[HttpResponseBase]],
) -> Callable[[HttpRequest], Awaitable[HttpResponseBase]]:
    async def answer(request: HttpRequest) -> HttpResponseBase:
        token = request_ids.current.set(request_ids.of(request))
        try:
            return _with_id(request, await get_response(request))
        finally:
            request_ids.current.reset(token)

    return answer


def _with_id(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    response[request_ids.HEADER] = request_ids.of(request)
    return response
