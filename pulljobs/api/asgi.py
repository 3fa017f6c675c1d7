"""ASGI wrapper for long polls: `application = with_pulls(get_asgi_application())`."""

import asyncio
import gc
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final
from weakref import ReferenceType

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.core.signals import request_finished, request_started
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

from pulljobs.conf import settings
from pulljobs.deployment_checks import sync_only_middleware

PULLS: Final = re.compile(r"[^/]+/consumer/[^/]+/(pull|ack|renew)")
"""Paths of pulls, acks and renewals, after `/channel/`."""
SHARED: Final = ThreadSensitiveContext()
"""Context of asgiref with the one thread for synchronous code of pulls, acks and renewals."""

COLLECT_AFTER: Final = 2_000
"""New objects that survive until a garbage collection begins, which stops all threads.

An answered pull makes room for the next one, so these are far fewer than the objects it searches.
"""
COLLECT_ALL_AFTER: Final = 100
"""Collections of new objects until one searches those that survived them, which takes long."""

logger = logging.getLogger("pulljobs.api")

Application = Callable[..., Awaitable[None]]
"""ASGI application: called with a scope, a function to receive and a function to send."""


def with_pulls(application: Application) -> Application:
    """Wrap Django's ASGI application so that a process serves hundreds of long polls.

    Django starts a thread for every request, on which it sends synchronous signals and runs the
    synchronous parts of middleware. Its own receivers and middleware take no time. For pulls,
    acks and renewals the wrapper therefore sends the signals only if code outside of Django
    receives them, and runs all middleware on one thread, which makes these requests several times
    cheaper. Middleware that is entirely synchronous would hold that thread until the answer. If a
    project has some, which a system check and the log name, the application is returned unchanged.
    """
    if named := sync_only_middleware():
        logger.warning(
            "Each long poll holds a thread, because middleware is synchronous: %s",
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
            serving = application if _has_foreign_receivers() else pulls
            await serving(scope, _limit_body(receive), send)
        finally:
            SyncToAsync.thread_sensitive_context.reset(token)

    return serve


def tune_process() -> None:
    """Shorten the pauses of a process that serves thousands of waiting pulls.

    Call it once, after `with_pulls`. Everything that is loaded by then counts as permanent for the
    garbage collector, which afterwards collects often and briefly.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, COLLECT_ALL_AFTER)


def _is_pull(scope: Any) -> bool:
    """Return True for pulls, acks and renewals: their views do not block the thread they share."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return False
    _mounted, _slash, rest = scope["path"].partition("/channel/")  # Message ids may have slashes.
    return PULLS.fullmatch(rest) is not None


def _limit_body(receive: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    """Wrap an ASGI `receive` so that it cuts off a body that is too large for any route.

    Django would write such a body to a file. The rest of the body is received and dropped, so that
    the client can read the refusal.
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
    """Return an application that serves requests as the handler does, without Django's signals.

    Django's own receivers of `request_started` and `request_finished` close connections and caches
    of a thread, which the event loop does not have.
    """

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        with suppress(RequestAborted), await handler.read_body(receive) as body:
            set_script_prefix(get_script_prefix(scope))
            request, refused = handler.create_request(scope, body)
            if refused is not None:
                await handler.send_response(refused, send)
                return
            response = await _unless_disconnected(_answer(handler, request, send), receive)
            if response is not None:
                _release_resources(response)
                # Sessions, messages and users refer to their request. Without this, each pull
                # would leave dozens of objects to the garbage collector.
                vars(request).clear()

    return serve


def _release_resources(response: Any) -> None:
    """Close the files of a response and its request, without the signal that `close` sends."""
    for close in response._resource_closers:
        with suppress(Exception):
            close()


async def _answer(handler: ASGIHandler, request: Any, send: Any) -> HttpResponseBase:
    response = await handler.run_get_response(request)
    await handler.send_response(response, send)
    return response


async def _unless_disconnected(
    answer: Coroutine[Any, Any, HttpResponseBase], receive: Any
) -> HttpResponseBase | None:
    """Await the answer and return its response.

    If the client disconnects first, cancel the answer and return None.
    """
    answering = asyncio.create_task(answer)
    # After the body a server can only report that the client disconnected.
    listening = asyncio.create_task(receive())
    listening.add_done_callback(lambda _: answering.cancel())
    try:
        await asyncio.wait({answering})
    finally:
        answering.cancel()
        listening.cancel()
    return None if answering.cancelled() else answering.result()


def _has_foreign_receivers() -> bool:
    """Return True if code outside of Django receives `request_started` or `request_finished`.

    Such code may rely on the thread of a request.
    """
    signals = (request_started, request_finished)
    connected = (entry[1] for signal in signals for entry in signal.receivers)
    receivers = (ref() if isinstance(ref, ReferenceType) else ref for ref in connected)
    return any(
        receiver is not None and not receiver.__module__.startswith("django.")
        for receiver in receivers
    )
