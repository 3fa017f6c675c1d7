"""Serving of several requests by shared statements: one finds all callers, one settles all jobs.

A thread takes the small requests that came while every thread was busy. So a busy process runs
fewer statements and commits than it has requests, and a request to an idle process waits for no
other. What one caller asks for neither delays nor fails the others: shared work waits for no lock
of a row, and after an error, which leaves nothing written, each request is done alone, unless the
connection is lost.
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
from pulljobs.storage.protocol import Caller, ConsumerNames

if TYPE_CHECKING:
    from django.http import HttpRequest

    from pulljobs.api.leases.lease_view import LeaseView

SMALL_BODY: Final = 16 * 1024
"""Largest body that is read together with others, in bytes: a larger one would delay them."""

logger = logging.getLogger("pulljobs.api")
T = TypeVar("T")


class Threads(Protocol):
    """Interface of `DatabaseThreads`, as this module needs it."""

    @property
    def is_connected(self) -> bool:
        """True if the current thread has a database connection."""

    def run(self, work: Callable[[], T]) -> T:
        """Run work with the database on the current thread, within a time limit."""

    def call(self, work: Callable[[], None]) -> object:
        """Run work on the next free thread."""

    def run_if_free(self, work: Callable[[], None]) -> bool:
        """Run work on this thread, although it may wait for locks, and return True.

        Return False, without running it, if too many threads do such work.
        """

    def run_alone(self, every: Sequence[Callable[[], None]]) -> None:
        """Queue work that may wait for locks, and run it, while one thread is kept free of it."""


@dataclass(eq=False, slots=True)
class LeaseRequest:
    """Pull, ack or renewal that waits for a thread. Its future gets the consumer and the result."""

    view: "LeaseView[Any, Any]"
    request: "HttpRequest"
    names: ConsumerNames
    sent: bytes
    """Body as it was sent, which may be compressed."""
    future: Future[tuple[Consumer, Any]] = field(default_factory=Future)
    context: Context = field(default_factory=copy_context)
    """Context of the request, by which log lines of work for it alone have its id."""

    @property
    def is_small(self) -> bool:
        """True if the body is short and not compressed: reading it delays no other request."""
        return len(self.sent) <= SMALL_BODY and raw_bodies.ENCODING not in self.request.META

    def authenticate(self, caller: Caller | None) -> tuple[Consumer, Any]:
        """Return the authenticated consumer and the parsed body, or raise a refusal.

        `caller` has the rows of the channel and the consumer in the URL, as far as they exist.
        """
        tokens = authentication.tokens_of(self.request.META)
        consumer = authentication.check_consumer(tokens, caller)
        return consumer, self.view.accept(self.request, consumer, self.sent)


@dataclass(eq=False, slots=True)
class ReadRequest:
    """Request of an authenticated consumer, with its parsed body in `asked`."""

    sender: LeaseRequest
    consumer: Consumer
    asked: Any

    def answer(self, result: Any) -> None:
        self.sender.future.set_result((self.consumer, result))


def serve(requests: Sequence[LeaseRequest], threads: Threads) -> None:
    """Do the work of requests with the database, and complete their futures.

    Requests whose future is cancelled are skipped. Work that has to be done alone may continue
    on other threads after the return.
    """
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
    """Authenticate all callers by one statement, and return the requests that may go on.

    The futures of the others get their refusals. If the statement fails, the result is empty, and
    `_serve_each` serves the requests.
    """
    find = partial(protocol.find_callers, settings().DATABASE, {each.names for each in requests})
    try:
        callers = threads.run(partial(_context_of(requests).run, find))
    except Exception as error:
        _serve_each(requests, error, threads)
        return []
    read: list[ReadRequest] = []
    for each in requests:
        with _answering(each):
            authenticate = partial(each.authenticate, callers.get(each.names))
            read.append(ReadRequest(each, *threads.run(partial(each.context.run, authenticate))))
    return read


def _serve_each(requests: Sequence[LeaseRequest], error: Exception, threads: Threads) -> None:
    """Serve each request alone after an error of their shared statement.

    If the connection is lost, or there is one request only, the futures get the error.
    """
    if len(requests) > 1 and threads.is_connected:
        for each in requests:
            threads.call(partial(_serve, [each], threads))
    else:
        for each in requests:
            each.future.set_exception(error)


def _share(
    view: type["LeaseView[Any, Any]"], group: Sequence[ReadRequest], threads: Threads
) -> Sequence[ReadRequest]:
    """Do the work of requests to one view together, and return those that have to be done alone.

    If it fails, these are all of them, or none after the loss of the connection: then their futures
    get the error.
    """
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
    """Complete the request's future with an error of the block, instead of raising the error."""
    try:
        yield
    except Exception as error:
        request.future.set_exception(error)


def _context_of(requests: Sequence[LeaseRequest]) -> Context:
    """Return the context of a single request, or an empty context for several requests."""
    return requests[0].context if len(requests) == 1 else Context()
