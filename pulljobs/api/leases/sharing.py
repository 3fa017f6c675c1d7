"""Requests that come together and share statements: one finds all callers, one settles all jobs.

A thread takes all requests that came while every thread was busy. So a busy process runs fewer
statements and commits than it has requests, and a request to an idle process waits for no other.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pulljobs.api import authentication
from pulljobs.conf import settings
from pulljobs.models import Consumer
from pulljobs.storage import protocol
from pulljobs.storage.protocol import Caller, ConsumerPath

if TYPE_CHECKING:
    from django.http import HttpRequest

    from pulljobs.api.leases.lease_view import LeaseView

Run = Callable[[Callable[[], Any]], Any]
"""Function that runs work with the database."""


@dataclass(eq=False, slots=True)
class LeaseRequest:
    """Request whose caller is not authenticated yet, with the future of its database work."""

    view: "LeaseView[Any, Any]"
    request: "HttpRequest"
    path: ConsumerPath
    sent: bytes
    """Body as it was sent."""
    future: Future[tuple[Consumer, Any]] = field(default_factory=Future)
    context: Context = field(default_factory=copy_context)
    """Context of the request: log lines on any thread have its id."""

    def authenticate(self, caller: Caller | None) -> tuple[Consumer, Any]:
        """Authenticate the caller, and read the body. Raise a refusal otherwise."""
        consumer = authentication.check_consumer(self.request.headers, caller)
        return consumer, self.view.accept(self.request, consumer, self.sent)


@dataclass(eq=False, slots=True)
class ReadRequest:
    """Request of an authenticated consumer, with its body as the view read it."""

    sender: LeaseRequest
    consumer: Consumer
    asked: Any


def serve(requests: Sequence[LeaseRequest], run: Run) -> None:
    """Do the database work of requests, and complete their futures."""
    going = [each for each in requests if each.future.set_running_or_notify_cancel()]
    by_view: defaultdict[type[Any], list[ReadRequest]] = defaultdict(list)
    for read in _read_all(going, run):
        by_view[type(read.sender.view)].append(read)
    for view, together in by_view.items():
        for part in [together] if view.shares_statements else [[each] for each in together]:
            _do(view, part, run)


def _read_all(requests: Sequence[LeaseRequest], run: Run) -> Iterator[ReadRequest]:
    """Yield the requests that may go on, and answer the others."""
    find = partial(protocol.find_callers, settings().DATABASE, {each.path for each in requests})
    callers: Mapping[ConsumerPath, Caller] | None
    callers = _attempt(requests, find, run) if requests else None
    if callers is None:
        return
    for each in requests:
        read = _attempt([each], partial(each.authenticate, callers.get(each.path)), run)
        if read is not None:
            yield ReadRequest(each, *read)


def _do(view: type["LeaseView[Any, Any]"], together: Sequence[ReadRequest], run: Run) -> None:
    """Do what requests of one kind ask for."""
    asked = [(each.consumer, each.asked) for each in together]
    done = _attempt([each.sender for each in together], partial(view.do, asked), run)
    for each, result in zip(together, done, strict=True) if done is not None else ():
        each.sender.future.set_result((each.consumer, result))


def _attempt(requests: Sequence[LeaseRequest], work: Callable[[], Any], run: Run) -> Any:
    """Run work for requests and return its result, or None after an error, which answers them.

    Log lines of work for several requests have the id of none.
    """
    context = requests[0].context if len(requests) == 1 else Context()
    try:
        return run(partial(context.run, work))
    except Exception as error:
        for each in requests:
            each.future.set_exception(error)
        return None
