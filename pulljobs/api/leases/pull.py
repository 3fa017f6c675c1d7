"""POST pull: jobs under a lease, now or as soon as there are some."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from pulljobs import pulling
from pulljobs.api import exceptions, problems, pull_bodies
from pulljobs.api.leases.lease_view import LeaseView, holds_thread
from pulljobs.api.leases.long_poll.pending import Answer, Asked, Pull, Why
from pulljobs.api.leases.long_poll.queue import lease_of
from pulljobs.api.leases.long_poll.waiters import WaitingRoom
from pulljobs.conf import settings
from pulljobs.models import Consumer


class PullView(LeaseView[Asked]):
    def begin(self, consumer: Consumer, body: bytes) -> Asked:
        return pull_bodies.asked(pull_bodies.fields(body))

    async def finish(self, consumer: Consumer, begun: Asked) -> dict[str, Any]:
        return await pull(self, consumer, begun)


async def pull(view: LeaseView[Any], consumer: Consumer, asked: Asked) -> dict[str, Any]:
    """What an answer has of a pull."""
    if consumer.type != Consumer.Type.PULL:
        raise exceptions.push_consumer()
    pull = Pull(consumer, asked)
    if (before := await claimed_before(view.room, pull)) is not None:
        return pull_bodies.pulled(asked, before, lease_of(pull))
    held = pull.lingers and holds_thread(view.request)
    with lingering_threads.one_more() if held else nullcontext():
        answer = await wait_for(view.room, pull)
    return pull_bodies.pulled(asked, answer, lease_of(pull))


async def claimed_before(room: WaitingRoom, pull: Pull) -> Answer | None:
    """What was lost is told again at once, whoever waits in line."""
    if pull.asked.request_id is None:
        return None
    using, consumer_id = settings().DATABASE, pull.consumer.pk
    look = partial(pulling.claimed_before, using, consumer_id, pull.asked.request_id)
    claim = await room.run(look)
    if claim is None:
        return None
    return Answer(pull.otherwise if claim.is_spent else Why.OK, claim)


async def wait_for(room: WaitingRoom, pull: Pull) -> Answer:
    """The answer; when the client goes away before it is sent, what it was given goes back."""
    room.join(pull)
    try:
        answer = await asyncio.wrap_future(pull.future)
        await asyncio.sleep(0)  # A disconnect that is known by now is heard of here.
    except asyncio.CancelledError:
        room.left(pull)
        raise
    request = asyncio.current_task()
    if request is not None and answer.claim is not None:
        # Middleware runs before the answer goes out.
        request.add_done_callback(lambda task: room.left(pull) if task.cancelled() else None)
    return answer


class LingeringThreads:
    """How many pulls hold a thread of this process."""

    def __init__(self) -> None:
        self._count, self._lock = 0, threading.Lock()

    @contextmanager
    def one_more(self) -> Iterator[None]:
        limit = settings().MAX_LONG_POLL_THREADS
        with self._lock:
            if self._count >= limit:
                raise problems.too_many_threads(limit)
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1


lingering_threads = LingeringThreads()
