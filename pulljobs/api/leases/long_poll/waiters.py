"""Where the pulls of a process wait; made by the first of them."""

import asyncio
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Final, TypeVar
from uuid import UUID, uuid4

import psycopg
from django.db import DatabaseError, InterfaceError

from pulljobs.api import exceptions, problems
from pulljobs.api.leases.long_poll import stopping
from pulljobs.api.leases.long_poll.pending import Pull, Why
from pulljobs.api.leases.long_poll.queue import Line, give_back_answered
from pulljobs.api.leases.long_poll.threads import DatabaseThreads
from pulljobs.conf import settings
from pulljobs.engine.addresses import is_absolute
from pulljobs.engine.telemetry import LoopFailed, emit
from pulljobs.models import Consumer, Node
from pulljobs.storage import listen, nodes, statements

LOOK_SECONDS: Final = 0.5
"""Between looks after rows: ours, and those of consumers that may be gone."""
LONGEST_PAUSE: Final = 5.0
CLOSE_SECONDS: Final = 5.0

T = TypeVar("T")


class WaitingRoom:
    """Requests come from any thread and event loop; the lines live on the room's own."""

    def __init__(self) -> None:
        self.node_id: UUID = uuid4()
        self.ticked = time.monotonic()
        """When it last looked after its rows, on the monotonic clock."""
        self._address = self._told_address = settings().ADDRESS
        self._using = settings().DATABASE
        self._threads = DatabaseThreads()
        self._lines: dict[int, Line] = {}
        self._stopping = False
        self._leaving: asyncio.Task[None] | None = None
        self._beat_at = float("-inf")
        self._registered = False
        self._ending = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._live, name="pulljobs-waiting", daemon=True)
        self._thread.start()

    @property
    def lingering(self) -> int:
        """Pulls that wait."""
        return sum(line.lingering for line in list(self._lines.values()))

    def reached_at(self, address: str) -> None:
        """The base URL that a caller used whose tokens are right: others are sent there, too.

        Its port is whatever the caller wrote: Django looks only at the name.
        """
        if not self._address and is_absolute(address):
            self._address = address

    def join(self, pull: Pull) -> None:
        # In a context of its own: what the line does, it does for others, too.
        self._loop.call_soon_threadsafe(self._join, pull, context=Context())

    def left(self, pull: Pull) -> None:
        """Its client went away: what it got meanwhile, or gets at this moment, goes back."""
        pull.future.cancel()
        submit = self._threads.submit
        pull.future.add_done_callback(lambda _: give_back_answered(pull, submit))
        self._loop.call_soon_threadsafe(self._drop, pull)

    def stop(self) -> None:
        """Nobody lingers any more; what is there is still given. From signal handlers, too."""
        with suppress(RuntimeError):  # The loop is closed: so it has stopped.
            self._loop.call_soon_threadsafe(self._stop)

    def close(self) -> None:
        """Stop, and end the thread and its connections."""
        self.stop()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(CLOSE_SECONDS)

    async def run(self, work: Callable[[], T], *, claiming_for: int | None = None) -> T:
        """Work with the database, off the event loop that awaits it; on any event loop.

        It has the context of who awaits it, and so, in its log lines, the id of the request.
        """
        work = partial(copy_context().run, work)
        return await asyncio.wrap_future(self._threads.submit(work, claiming_for=claiming_for))

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._attend())
        finally:
            self._threads.close()
            self._loop.close()

    async def _attend(self) -> None:
        tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._look_after())]
        await self._ending.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._leaving is not None:
            await self._leaving
        for line in self._lines.values():
            line.end(exceptions.unreachable())
        await self._leave()

    async def _leave(self) -> None:
        """When all claims have ended, nobody is to think that we wait."""
        await asyncio.gather(*(line.ended() for line in self._lines.values() if not line.pulls))
        if self._registered:
            self._registered = False
            with suppress(DatabaseError, InterfaceError):
                await self.run(partial(nodes.stop, self._using, self.node_id))

    def _join(self, pull: Pull) -> None:
        if self._stopping and pull.lingers:
            pull.asked, pull.otherwise = pull.asked._replace(expires=0.0), Why.SERVER_SHUTDOWN
        line = self._lines.get(pull.consumer.pk)
        if line is None:
            line = self._lines[pull.consumer.pk] = Line(self, pull.consumer)
        line.join(pull)

    def _drop(self, pull: Pull) -> None:
        if (line := self._lines.get(pull.consumer.pk)) is not None:
            line.drop(pull)

    def _stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        for line in self._lines.values():
            line.stop()
        self._leaving = asyncio.create_task(self._leave())

    async def _listen(self) -> None:
        """Wake lines for what publishers say; behind a pooler they poll."""
        failures = 0
        while not statements.behind_pooler(self._using):
            try:
                params = await self.run(partial(listen.session_of_its_own, self._using))
                async with listen.listening(params) as heard:
                    failures = 0
                    self._wake_all()  # For what was published before it listened.
                    async for consumer_id in heard:
                        if (line := self._lines.get(consumer_id)) is not None:
                            line.wake()
            except (psycopg.Error, DatabaseError, InterfaceError, OSError) as error:
                pause = min(0.1 * 2.0**failures, LONGEST_PAUSE) * random.uniform(0.5, 1)
                failures += 1
                emit(LoopFailed("listening over HTTP", str(error).strip(), pause))
                await asyncio.sleep(pause)

    def _wake_all(self) -> None:
        for line in self._lines.values():
            line.wake()

    async def _look_after(self) -> None:
        while not self._stopping:
            try:
                await self._look()
                self.ticked = time.monotonic()
            except (DatabaseError, InterfaceError) as error:
                emit(LoopFailed("waiters over HTTP", str(error).strip(), LOOK_SECONDS))
            await asyncio.sleep(LOOK_SECONDS)
        self._registered = True  # Perhaps by a look that went on when we left.
        await self._leave()

    async def _look(self) -> None:
        await self._beat()
        await self._end_gone()
        for line in list(self._lines.values()):
            await line.keep_count()
        self._lines = {id: line for id, line in self._lines.items() if not line.is_idle}

    async def _beat(self) -> None:
        address = self._address
        if not self._registered:
            name = f"{socket.gethostname()}:{os.getpid()}"
            how = {"kind": Node.Kind.API, "address": address}
            await self.run(partial(nodes.register, self._using, self.node_id, name, **how))
            self._registered = True
        elif address != self._told_address or self._is_due:
            await self.run(partial(nodes.beat, self._using, self.node_id, address=address))
        else:
            return
        self._beat_at, self._told_address = time.monotonic(), address

    @property
    def _is_due(self) -> bool:
        return time.monotonic() - self._beat_at >= settings().HEARTBEAT_INTERVAL.total_seconds()

    async def _end_gone(self) -> None:
        """End the wait for consumers that were deleted, or turned to push."""
        waiting = {id: line for id, line in self._lines.items() if line.pulls}
        if not waiting:
            return
        types = await self.run(partial(_types, self._using, list(waiting)))
        for id, line in waiting.items():
            if id not in types:
                line.end(problems.consumer_deleted())
            elif types[id] != Consumer.Type.PULL:
                line.end(exceptions.push_consumer())


def _types(using: str, consumer_ids: list[int]) -> dict[int, str]:
    rows = Consumer.objects.using(using).filter(pk__in=consumer_ids, deleted_at=None)
    return dict(rows.values_list("pk", "type"))


_room: WaitingRoom | None = None
_making = threading.Lock()


def waiting_room() -> WaitingRoom:
    """The one of this process."""
    global _room
    with _making:
        if _room is None:
            _room = WaitingRoom()
        stopping.before_the_end(_room.stop)
        return _room


def running() -> WaitingRoom | None:
    """The one of this process, if anybody has waited yet."""
    return _room


def close() -> None:
    """End what this process has running; the next pull starts anew."""
    global _room
    with _making:
        room, _room = _room, None
    stopping.forget()
    if room is not None:
        room.close()


def _forget() -> None:
    """In a fork, which has none of the threads."""
    global _room, _making
    _room, _making = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
