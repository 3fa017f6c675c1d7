"""Requests that come together and share statements: one finds all callers, one settles all jobs.

A thread takes all requests that came while every thread was busy. So a busy process runs fewer
statements and commits than it has requests, and a request to an idle process waits for no other.
What one caller asks for neither delays nor fails the others: shared work waits for no lock of a
row, and after an error, which leaves nothing written, each request is done alone.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from pulljobs.api import authentication, raw_bodies
from pulljobs.conf import settings
from pulljobs.models import Consumer
from pulljobs.storage import protocol
from pulljobs.storage.protocol import Caller, ConsumerPath

if TYPE_CHECKING:
    from django.http import HttpRequest

    from pulljobs.api.leases.lease_view import LeaseView

SMALL_BODY: Final = 16 * 1024
"""Most bytes of a body that is read next to others: a larger one would keep them waiting."""

logger = logging.getLogger("pulljobs.api")
T = TypeVar("T")


class Threads(Protocol):
    """Threads with connections to the database."""

    @property
    def is_connected(self) -> bool:
        """True if this thread has a connection. An error of the server or the network ends it."""

    def run(self, work: Callable[[], T]) -> T:
        """Run work with the database on this thread, within a time limit."""

    def call(self, work: Callable[[], None]) -> object:
        """Run work on a thread that is free."""

    def run_if_free(self, work: Callable[[], None]) -> bool:
        """Run work that may wait for locks, unless other such work keeps too many threads."""

    def run_alone(self, every: Sequence[Callable[[], None]]) -> None:
        """Run work that may wait for locks, in turn, while a thread is left for other work."""


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

    @property
    def is_small(self) -> bool:
        """True if it takes no time to read the body."""
        return len(self.sent) <= SMALL_BODY and raw_bodies.ENCODING not in self.request.META

    def authenticate(self, caller: Caller | None) -> tuple[Consumer, Any]:
        """Authenticate the caller, and read the body. Raise a refusal otherwise."""
        tokens = authentication.tokens_of(self.request.META)
        consumer = authentication.check_consumer(tokens, caller)
        return consumer, self.view.accept(self.request, consumer, self.sent)


@dataclass(eq=False, slots=True)
class ReadRequest:
    """Request of an authenticated consumer, with its body as the view read it."""

    sender: LeaseRequest
    consumer: Consumer
    asked: Any

    def answer(self, result: Any) -> None:
        self.sender.future.set_result((self.consumer, result))


def serve(requests: Sequence[LeaseRequest], threads: Threads) -> None:
    """Do the database work of requests, and complete their futures."""
    _serve([each for each in requests if each.future.set_running_or_notify_cancel()], threads)


def _serve(requests: Sequence[LeaseRequest], threads: Threads) -> None:
    read = _read_all(requests, threads) if requests else []
    if len(read) == 1 and threads.run_if_free(partial(_do_alone, read[0], threads)):
        return
    by_view: defaultdict[type[Any], list[ReadRequest]] = defaultdict(list)
    for each in read:
        by_view[type(each.sender.view)].append(each)
    rest = [each for view, group in by_view.items() for each in _share(view, group, threads)]
    if rest:  # Last: all others have their answers.
        threads.run_alone([partial(_do_alone, each, threads) for each in rest])


def _read_all(requests: Sequence[LeaseRequest], threads: Threads) -> list[ReadRequest]:
    """Return the requests that may go on, and answer the others."""
    find = partial(protocol.find_callers, settings().DATABASE, {each.path for each in requests})
    try:
        callers = threads.run(partial(_context_of(requests).run, find))
    except Exception as error:
        _part(requests, error, threads)
        return []
    read: list[ReadRequest] = []
    for each in requests:
        with _answering(each):
            authenticate = partial(each.authenticate, callers.get(each.path))
            read.append(ReadRequest(each, *threads.run(partial(each.context.run, authenticate))))
    return read


def _part(requests: Sequence[LeaseRequest], error: Exception, threads: Threads) -> None:
    """Serve each request alone after an error that met all, unless the connection is lost."""
    if len(requests) > 1 and threads.is_connected:
        for each in requests:
            threads.call(partial(_serve, [each], threads))
    else:
        for each in requests:
            each.future.set_exception(error)


def _share(
    view: type["LeaseView[Any, Any]"], group: Sequence[ReadRequest], threads: Threads
) -> Sequence[ReadRequest]:
    """Do what requests of one kind ask for, and return those that have to be done alone."""
    senders = [each.sender for each in group]
    work = partial(view.do_together, [(each.consumer, each.asked) for each in group])
    try:
        done = threads.run(partial(_context_of(senders).run, work))
    except Exception as error:
        if threads.is_connected:
            logger.info("%d requests are done alone after %s.", len(group), type(error).__name__)
            return group
        for sender in senders:
            sender.future.set_exception(error)
        return []
    for each, result in zip(group, done, strict=True):
        if result is not None:
            each.answer(result)
    return [each for each, result in zip(group, done, strict=True) if result is None]


def _do_alone(read: ReadRequest, threads: Threads) -> None:
    view, sender = type(read.sender.view), read.sender
    with _answering(sender):
        work = partial(view.do, read.consumer, read.asked)
        read.answer(threads.run(partial(sender.context.run, work)))


@contextmanager
def _answering(request: LeaseRequest) -> Iterator[None]:
    """Answer the request with an error that the block raises."""
    try:
        yield
    except Exception as error:
        request.future.set_exception(error)


def _context_of(requests: Sequence[LeaseRequest]) -> Context:
    """Return the context of a request. Log lines of work for several have the id of none."""
    return requests[0].context if len(requests) == 1 else Context()
