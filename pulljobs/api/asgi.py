"""For asgi.py: `application = with_pulls(get_asgi_application())`."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, cast
from weakref import ReferenceType

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.core.signals import request_finished, request_started
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

from pulljobs.checks import sync_only_middleware
from pulljobs.conf import settings

PULLS: Final = re.compile(r"[^/]+/consumer/[^/]+/(pull|ack|renew)")
"""What follows `/channel/` in their paths."""
SHARED: Final = ThreadSensitiveContext()
"""What these requests have to do on a thread, they do on one for all of them."""

logger = logging.getLogger("pulljobs.api")

Application = Callable[..., Awaitable[None]]
"""As ASGI has it: of a scope, a function to receive and one to send."""


def with_pulls(application: Application) -> Application:
    """The application, to serve hundreds of pulls that linger, and thousands that come and go.

    Django starts a thread for every request, for signals and middleware that are synchronous, if
    only in part. Those of Django take no time, so for pulls, acks and renewals its signals are sent
    on the event loop and its middleware shares one thread, which makes them several times cheaper.
    Middleware that is synchronous as a whole would hold that thread until the answer: where there
    is some (a check and the log name it), all stays as it is.
    """
    if named := sync_only_middleware():
        logger.warning(
            "Each pull that lingers holds a thread, for middleware is synchronous: %s",
            ", ".join(named),
        )
        return application
    pulls = _on_event_loop(application) if isinstance(application, ASGIHandler) else application

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        if not _is_pull(scope):
            await application(scope, receive, send)
            return
        token = SyncToAsync.thread_sensitive_context.set(SHARED)
        try:
            await (application if _others_listen() else pulls)(scope, _limited(receive), send)
        finally:
            SyncToAsync.thread_sensitive_context.reset(token)

    return serve


def _is_pull(scope: Any) -> bool:
    """Only their views are made for the one thread: whatever hashes a password would hold it."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return False
    _mounted, _slash, rest = scope["path"].partition("/channel/")  # Ids of messages have slashes.
    return PULLS.fullmatch(rest) is not None


def _limited(receive: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    """The body ends once it is too large for any route: Django would write all of it to a file.

    What follows is passed over, so that who is refused can read why.
    """
    size, limit = 0, settings().largest_body

    async def receive_limited() -> Any:
        nonlocal size
        while (message := await receive())["type"] == "http.request":
            if size <= limit:
                size += len(message.get("body", b""))
                return message if size <= limit else {**message, "more_body": False}
        return message

    return receive_limited


def _on_event_loop(handler: ASGIHandler) -> Application:
    """What the handler does with a request, but for the thread that it sends signals on."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        with suppress(RequestAborted), await handler.read_body(receive) as body:
            set_script_prefix(get_script_prefix(scope))
            request_started.send(sender=type(handler), scope=scope)
            request, refused = handler.create_request(scope, body)
            answer = _answer(handler, request, send) if request else _send(handler, refused, send)
            response = await _unless_gone(answer, receive)
            if response is None:
                request_finished.send(sender=type(handler))
            else:
                response.close()

    return serve


async def _answer(handler: ASGIHandler, request: Any, send: Any) -> HttpResponseBase:
    return await _send(handler, await handler.run_get_response(request), send)


async def _send(handler: ASGIHandler, response: Any, send: Any) -> HttpResponseBase:
    await handler.send_response(response, send)
    return cast("HttpResponseBase", response)


async def _unless_gone(
    answer: Coroutine[Any, Any, HttpResponseBase], receive: Any
) -> HttpResponseBase | None:
    """The answer, or None: it is cancelled when its client disconnects."""
    answering = asyncio.create_task(answer)
    # All that a server may say after the body is that the client is gone.
    listening = asyncio.create_task(receive())
    listening.add_done_callback(lambda _: answering.cancel())
    try:
        await asyncio.wait({answering})
    finally:
        answering.cancel()
        listening.cancel()
    return None if answering.cancelled() else answering.result()


def _others_listen() -> bool:
    """Whether signals around a request go to anybody but Django, who may count on a thread."""
    signals = (request_started, request_finished)
    heard = (entry[1] for signal in signals for entry in signal.receivers)
    receivers = (one() if isinstance(one, ReferenceType) else one for one in heard)
    return any(one is not None and not one.__module__.startswith("django.") for one in receivers)
