"""Base view of pull, ack and renew, which is asynchronous and uses the database on threads.

DRF has no asynchronous views, so these are plain views of Django. Under WSGI each of these requests
holds its thread until the answer.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from asgiref.sync import SyncToAsync
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.views import View

from pulljobs.api import error_answers, exceptions, middleware, raw_bodies, reaping, throttling
from pulljobs.api.asgi import SHARED
from pulljobs.api.authentication import storable_path
from pulljobs.api.broker.links import path_of
from pulljobs.api.leases.encoding import encode_answer
from pulljobs.api.leases.long_poll.waiters import process_waiters
from pulljobs.api.leases.sharing import LeaseRequest
from pulljobs.conf import settings
from pulljobs.engine.outcomes import Held
from pulljobs.models import Consumer
from pulljobs.storage import protocol

LARGEST_BODY: Final = 16 * 1024

A = TypeVar("A")
T = TypeVar("T")


class LeaseView(View, Generic[A, T]):
    """Base of the views with which a consumer pulls, acks and renews, by POST of a JSON body.

    `A` is the type of a body that was read. `T` is the type of the result of the work with the
    database, from which the answer is made.
    """

    http_method_names = ["post", "options"]
    largest_body = LARGEST_BODY

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Callable[..., HttpResponse]:
        view: Any = super().as_view(**initkwargs)
        view.csrf_exempt = True
        view.login_required = False  # Its callers have tokens: see LoginRequiredMiddleware.
        # A transaction must not stay open while a pull waits.
        view._non_atomic_requests = set(connections)
        return view  # type: ignore[no-any-return]  # what View returns

    async def post(self, request: HttpRequest, **names: str) -> HttpResponse:
        """Answer a POST. As this method is a coroutine, Django treats the view as asynchronous."""
        sent = raw_bodies.read_sent(request, self.largest_body)
        self.waiters = process_waiters()
        reaping.ensure_reaping()
        path = storable_path(names["channel"], names["consumer"])
        consumer, done = await self.waiters.serve(LeaseRequest(self, request, path, sent))
        return await encode_answer(await self.finish(consumer, done))

    def parse(self, consumer: Consumer, body: bytes) -> A:
        """Parse a decompressed body, or raise a refusal. This runs on a thread."""
        raise NotImplementedError

    @classmethod
    def do(cls, consumer: Consumer, asked: A) -> T:
        """Do the work of one request with the database, on a thread that may wait for locks."""
        raise NotImplementedError

    @classmethod
    def do_together(cls, asked: Sequence[tuple[Consumer, A]]) -> Sequence[T | None]:
        """Do the work of several requests with shared statements, and return their results.

        The result is None for a request that `do` has to serve alone. This method waits for no
        lock of a row. If it raises an error, nothing was written.
        """
        return [None] * len(asked)

    async def finish(self, consumer: Consumer, done: T) -> Any:
        """Return the body of the answer, made on the event loop from `done`, the result of `do`."""
        raise NotImplementedError

    def accept(self, request: HttpRequest, consumer: Consumer, sent: bytes) -> A:
        """Check the request of an authenticated consumer and return its parsed body.

        This runs on a thread. `sent` is the body as it was sent, which may be compressed.
        """
        body = raw_bodies.decompress(request, sent, self.largest_body)
        self._check(request, consumer, body)
        if not self.waiters.has_address:
            # After authentication: lookups send other clients to this address.
            self.waiters.learn_address(base_of(request))
        self.waiters.clients.note(consumer.pk, request.META)
        return self.parse(consumer, body)

    def held_jobs(self, body: bytes) -> list[Held]:
        """Return the jobs, with lease tokens, that a body settles or renews, by default none."""
        return []

    def _check(self, request: HttpRequest, consumer: Consumer, body: bytes) -> None:
        """Refuse a push consumer that holds no job of the body, and requests above a rate limit."""
        if consumer.type != Consumer.Type.PULL and not self._holds(consumer, body):
            raise exceptions.push_consumer()
        scope = request.resolver_match.url_name if request.resolver_match else None
        wait = throttling.seconds_to_wait(scope or "", consumer)
        if wait is not None:
            raise exceptions.throttled(wait)

    def _holds(self, consumer: Consumer, body: bytes) -> bool:
        """Return True if the consumer, now of type push, still holds a job that the body names."""
        try:
            held = self.held_jobs(body)
        except exceptions.RefusedRequest:
            return False
        return protocol.is_held(settings().DATABASE, consumer.pk, held)

    async def dispatch(self, request: HttpRequest, *args: Any, **names: str) -> HttpResponse:  # type: ignore[override]  # Django awaits it
        give_thread_back()
        response = await self._dispatch(request, **names)
        response[middleware.REQUEST_ID] = middleware.ensure_id(request)
        response["Cache-Control"] = "no-store"  # Answers have payloads and lease tokens.
        # Set here, so that a site of this API alone needs no middleware for it.
        response["Content-Length"] = str(len(response.content))
        return response

    async def _dispatch(self, request: HttpRequest, **names: str) -> HttpResponse:
        try:
            if request.method == "POST":
                return await self.post(request, **names)
            if request.method == "OPTIONS":
                return HttpResponse(headers={"Allow": self._allow})
            raise exceptions.not_allowed(request.method or "")
        except Exception as error:
            problem = error_answers.as_problem(error, {})
            if problem is None:
                raise
            if problem.status_code == 405:
                problem["Allow"] = self._allow
            return problem

    @property
    def _allow(self) -> str:
        return ", ".join(name.upper() for name in self.http_method_names)


def base_of(request: HttpRequest) -> str:
    """Return the absolute URL at which the API is mounted, with the host that the caller used."""
    mounted, _slash, _rest = path_of(request).partition("/channel/")
    return request.build_absolute_uri(mounted or "/")


def holds_thread(request: HttpRequest) -> bool:
    """Return True if a thread waits for the answer, as under WSGI."""
    return not isinstance(request, ASGIRequest)


def give_thread_back() -> None:
    """End the thread that Django has started for this request, so that a long poll holds none.

    Signals and synchronous middleware ran on that thread. Django starts another for the answer.
    """
    context = SyncToAsync.thread_sensitive_context.get(None)
    if context is not None and context is not SHARED:
        executor: Any = SyncToAsync.context_to_thread_executor.pop(context, None)
        if executor is not None:
            executor.submit(connections.close_all)
            executor.shutdown(wait=False)
