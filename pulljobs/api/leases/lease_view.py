"""What the views share that wait: on the event loop, with the database on threads of its own.

DRF has no asynchronous views, so these are plain ones of Django. Under WSGI they work as well, each
on its thread.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar

from asgiref.sync import SyncToAsync
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.views import View
from rest_framework.exceptions import Throttled

from pulljobs.api import exceptions, problems, raw_bodies, request_ids, throttling
from pulljobs.api.answers import as_json
from pulljobs.api.asgi import SHARED
from pulljobs.api.authentication import known
from pulljobs.api.leases.long_poll.waiters import waiting_room
from pulljobs.conf import settings
from pulljobs.engine.outcomes import Held
from pulljobs.models import Consumer
from pulljobs.storage import protocol

LARGEST_BODY: Final = 16 * 1024

T = TypeVar("T")


class LeaseView(View, Generic[T]):
    """For the consumer that the URL names; the body is JSON, whatever its Content-Type."""

    http_method_names = ["post", "options"]
    largest_body = LARGEST_BODY

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Callable[..., HttpResponse]:
        view: Any = super().as_view(**initkwargs)
        view.csrf_exempt = True
        # No transaction may be open while a pull lingers.
        view._non_atomic_requests = set(connections)
        return view  # type: ignore[no-any-return]  # what View returns

    async def post(self, request: HttpRequest, **names: str) -> HttpResponse:
        """For `View`, which looks at it to see that the view is asynchronous."""
        sent = raw_bodies.sent(request, self.largest_body)
        self.room = waiting_room()
        consumer, begun = await self.room.run(partial(self._begin, request, names, sent))
        return await as_json(await self.finish(consumer, begun))

    def begin(self, consumer: Consumer, body: bytes) -> T:
        """What takes the database, on one of its threads; a Refusal ends the request."""
        raise NotImplementedError

    async def finish(self, consumer: Consumer, begun: T) -> dict[str, Any]:
        """The answer, on the event loop."""
        raise NotImplementedError

    def _begin(
        self, request: HttpRequest, names: dict[str, str], sent: bytes
    ) -> tuple[Consumer, T]:
        consumer = known(request.headers, names["channel"], names["consumer"])
        body = raw_bodies.unpacked(request, sent, self.largest_body)
        self._check(request, consumer, body)
        self.room.reached_at(base_of(request))  # A stranger is not to say where others shall go.
        return consumer, self.begin(consumer, body)

    def named(self, body: bytes) -> list[Held]:
        """Jobs that are to be settled or renewed."""
        return []

    def _check(self, request: HttpRequest, consumer: Consumer, body: bytes) -> None:
        """Raise for what stands against this caller."""
        if consumer.type != Consumer.Type.PULL and not self._ends(consumer, body):
            raise exceptions.push_consumer()
        scope = request.resolver_match.url_name if request.resolver_match else None
        wait = throttling.seconds_to_wait(scope or "", consumer)
        if wait is not None:
            raise Throttled(wait)

    def _ends(self, consumer: Consumer, body: bytes) -> bool:
        """Whether it is about what was pulled before the consumer was turned to push."""
        try:
            held = self.named(body)
        except exceptions.Refusal:
            return False
        return protocol.is_held(settings().DATABASE, consumer.pk, held)

    async def dispatch(self, request: HttpRequest, *args: Any, **names: str) -> HttpResponse:  # type: ignore[override]  # Django awaits it
        give_thread_back()
        response = await self._dispatch(request, **names)
        response[request_ids.HEADER] = request_ids.of(request)
        # Here, for a site that has only this API may want to do without the middleware.
        response["Content-Length"] = str(len(response.content))
        return response

    async def _dispatch(self, request: HttpRequest, **names: str) -> HttpResponse:
        try:
            if request.method == "POST":
                return await self.post(request, **names)
            if request.method == "OPTIONS":
                return HttpResponse(headers={"Allow": self._allow})
            raise problems.not_allowed(request.method or "")
        except Exception as error:
            problem = exceptions.as_problem(error, {})
            if problem is None:
                raise
            if problem.status_code == 405:
                problem["Allow"] = self._allow
            return problem

    @property
    def _allow(self) -> str:
        return ", ".join(name.upper() for name in self.http_method_names)


def base_of(request: HttpRequest) -> str:
    """The URL below which the API is mounted, as this caller reached it."""
    mounted, _slash, _rest = request.path.partition("/channel/")
    return request.build_absolute_uri(mounted or "/")


def holds_thread(request: HttpRequest) -> bool:
    """Whether a thread waits for the answer: under WSGI."""
    return not isinstance(request, ASGIRequest)


def give_thread_back() -> None:
    """End the thread that Django has for this request alone, for the time of the wait.

    Its signals and synchronous middleware ran there; they get another one for the answer.
    """
    context = SyncToAsync.thread_sensitive_context.get(None)
    if context is not None and context is not SHARED:
        executor: Any = SyncToAsync.context_to_thread_executor.pop(context, None)
        if executor is not None:
            executor.submit(connections.close_all)
            executor.shutdown(wait=False)
