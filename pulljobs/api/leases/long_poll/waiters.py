"""Waiters: all queues of pulls of a server process, with their thread and node row.

The first request that needs them, such as a pull, starts them.
"""

import asyncio
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

from django.db import DatabaseError, InterfaceError

from pulljobs.api import exceptions
from pulljobs.api.leases.clients import ClientNotes
from pulljobs.api.leases.long_poll import stopping
from pulljobs.api.leases.long_poll.pending import PendingPull, PullReason
from pulljobs.api.leases.long_poll.queue import WaiterQueue, give_back_answered
from pulljobs.api.leases.long_poll.threads import DatabaseThreads
from pulljobs.api.leases.long_poll.waiter_row import PATIENCE, WaiterRow
from pulljobs.api.leases.sharing import LeaseRequest
from pulljobs.conf import settings
from pulljobs.engine.addresses import is_absolute
from pulljobs.engine.telemetry import LoopFailed, describe_error, emit
from pulljobs.loops import QUIET
from pulljobs.models import Consumer, Node
from pulljobs.storage import clients, listen, nodes, sessions

PASS_SECONDS: Final = 0.5
"""Pause between two passes, which write the node row and the rows of this waiter."""
LONGEST_PAUSE: Final = 5.0
CLOSE_SECONDS: Final = 5.0

T = TypeVar("T")


class Waiters:
    """Queues of pulls of a process, on a thread with an event loop of its own.

    Requests on any event loop or thread use them.
    """

    def __init__(self) -> None:
        self.node_id: UUID = uuid4()
        self.ticked = time.monotonic()
        """Monotonic time of the last successful pass of the loop that keeps this process's rows."""
        self.clients = ClientNotes()
        """Clients that pulled, acked or renewed since the last heartbeat."""
        self._address = self._sent_address = settings().ADDRESS
        self._using = settings().DATABASE
        self._threads = DatabaseThreads()
        self._queues: dict[int, WaiterQueue] = {}
        self._stopping = False
        self._leaving: asyncio.Task[None] | None = None
        self._beat_at = float("-inf")
        self._reported_at: dict[str, float] = {}
        self._registered = False
        self._ending = asyncio.Event()
        self._loop = _make_loop()
        self._thread = threading.Thread(target=self._run_loop, name="pulljobs-waiting", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of long polls that wait in this process."""
        return sum(queue.waiting for queue in list(self._queues.values()))

    @property
    def has_address(self) -> bool:
        """True if the base URL of this server is known, from a setting or from a caller."""
        return bool(self._address)

    def learn_address(self, address: str) -> None:
        """Use the base URL that an authenticated caller used, unless it is known already.

        The next pass writes it to the node row, where lookups of other clients find it. Django
        has checked its host name, but not its port.
        """
        if not self._address and is_absolute(address):
            self._address = address

    def report(self, loop: str, error: Exception, pause: float) -> None:
        """Emit that a loop of this name failed and pauses, once a second for all queues at most."""
        if time.monotonic() - self._reported_at.get(loop, -QUIET) >= QUIET:
            self._reported_at[loop] = time.monotonic()
            emit(LoopFailed(loop, describe_error(error), pause))

    def join(self, pull: PendingPull) -> None:
        """Append a pull to the queue of its consumer. Any thread may call this."""
        # An empty context: the queue serves other requests, too.
        self._loop.call_soon_threadsafe(self._join, pull, context=Context())

    def abandon(self, pull: PendingPull) -> None:
        """Remove the pull of a disconnected client, and release the jobs of its answer, if any."""
        pull.future.cancel()
        submit = self._threads.submit
        pull.future.add_done_callback(lambda _: give_back_answered(pull, submit))
        self._loop.call_soon_threadsafe(self._drop, pull)

    def stop(self) -> None:
        """End all long polls because the server stops. Pulls that do not wait are still served.

        Signal handlers may call this.
        """
        with suppress(RuntimeError):  # A closed loop has stopped.
            self._loop.call_soon_threadsafe(self._stop)

    def close(self) -> None:
        """End all long polls, the thread with the event loop, and the threads with connections."""
        self.stop()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(CLOSE_SECONDS)

    async def serve(self, request: LeaseRequest) -> tuple[Consumer, Any]:
        """Authenticate a request and do its work with the database.

        Return the consumer and the result of the view's work.
        """
        self._threads.serve(request)
        return await asyncio.wrap_future(request.future)

    async def run(self, work: Callable[[], T], *, claiming_for: int | None = None) -> T:
        """Run work with the database on a thread and return its result, for any event loop.

        The work has the context of its caller, so that log lines have the id of the request. For
        `claiming_for` see `DatabaseThreads.submit`.
        """
        work = partial(copy_context().run, work)
        return await asyncio.wrap_future(self._threads.submit(work, claiming_for=claiming_for))

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._run_tasks())
        finally:
            self._threads.close()
            self._loop.close()

    async def _run_tasks(self) -> None:
        tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._maintain())]
        await self._ending.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._leaving is not None:
            await self._leaving
        for queue in self._queues.values():
            queue.end(exceptions.unreachable())
        await self._leave()

    async def _leave(self) -> None:
        """Wait for running claims of empty queues, and mark this process's node row as stopped."""
        empty = [queue for queue in self._queues.values() if not queue.pulls]
        await asyncio.gather(*(queue.wait_for_claim() for queue in empty))
        if self._registered:
            self._registered = False
            with suppress(DatabaseError, InterfaceError):
                await self.run(partial(nodes.stop, self._using, self.node_id))

    def _join(self, pull: PendingPull) -> None:
        if self._stopping and pull.waits:
            pull.asked = pull.asked._replace(expires=0.0)
            pull.reason_if_empty = PullReason.SERVER_SHUTDOWN
        queue = self._queues.get(pull.consumer.pk)
        if queue is None:
            queue = self._queues[pull.consumer.pk] = WaiterQueue(self, pull.consumer)
        queue.join(pull)

    def _drop(self, pull: PendingPull) -> None:
        if (queue := self._queues.get(pull.consumer.pk)) is not None:
            queue.drop(pull)

    def _stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        for queue in self._queues.values():
            queue.stop()
        self._leaving = asyncio.create_task(self._leave())

    async def _listen(self) -> None:
        """Wake the queues for which publishers send notifications, and listen again after errors.

        A pooler in transaction mode passes on no notifications, so behind it the queues only poll.
        """
        failures = 0
        while not sessions.behind_pooler(self._using):
            try:
                params = await self.run(partial(listen.make_connection_params, self._using))
                async with listen.listening(params) as notified:
                    failures = 0
                    self._wake_all()  # Jobs may have been published before this listened.
                    async for consumer_id in notified:
                        if (queue := self._queues.get(consumer_id)) is not None:
                            queue.wake()
            except Exception as error:
                pause = min(0.1 * 2.0**failures, LONGEST_PAUSE) * random.uniform(0.5, 1)
                failures += 1
                self.report("listening over HTTP", error, pause)
                await asyncio.sleep(pause)

    def _wake_all(self) -> None:
        for queue in self._queues.values():
            queue.wake()

    async def _maintain(self) -> None:
        while not self._stopping:
            try:
                await self._pass()
                self.ticked = time.monotonic()
            except Exception as error:
                self.report("waiters over HTTP", error, PASS_SECONDS)
            await asyncio.sleep(PASS_SECONDS)
        self._registered = True  # A pass may have gone on while the row was marked as stopped.
        await self._leave()

    async def _pass(self) -> None:
        await self._beat()
        await self._end_refused()
        await self._keep_counts()
        self._queues = {id: queue for id, queue in self._queues.items() if not queue.is_idle}

    async def _keep_counts(self) -> None:
        """Correct the number of long polls in the rows of this waiter, all in one statement.

        Delete its rows for consumers for which no long poll waits.
        """
        rows = [queue.row for queue in self._queues.values()]
        miscounted = [row for row in rows if row.is_miscounted]
        if waiting := [row for row in miscounted if row.most_waiting]:
            async with AsyncExitStack() as locks:
                for row in waiting:
                    await locks.enter_async_context(row.lock)
                await self._write_counts(waiting)
        for row in miscounted:
            await row.delete_if_empty()
        for queue in self._queues.values():
            queue.row.most_waiting = queue.waiting

    async def _write_counts(self, rows: Sequence[WaiterRow]) -> None:
        counts, now = [row.counted for row in rows], time.monotonic()
        args = [row.consumer_id for row in rows], self.node_id, PATIENCE, counts
        await self.run(partial(listen.wait, self._using, *args))
        for row, count in zip(rows, counts, strict=True):
            row.note_written(count, now)

    async def _beat(self) -> None:
        address = self._address
        if not self._registered:
            name = f"{socket.gethostname()}:{os.getpid()}"
            fields = {"kind": Node.Kind.API, "address": address}
            await self.run(partial(nodes.register, self._using, self.node_id, name, **fields))
            self._registered = True
        elif address != self._sent_address or self._is_due:
            await self.run(partial(nodes.beat, self._using, self.node_id, address=address))
        else:
            return
        self._beat_at, self._sent_address = time.monotonic(), address
        if noted := self.clients.take():
            await self.run(partial(clients.record, self._using, noted))

    @property
    def _is_due(self) -> bool:
        return time.monotonic() - self._beat_at >= settings().HEARTBEAT_INTERVAL.total_seconds()

    async def _end_refused(self) -> None:
        """Refuse queued pulls with old tokens, or whose consumer was deleted or became push."""
        waiting = {id: queue for id, queue in self._queues.items() if queue.pulls}
        if not waiting:
            return
        # Pulls that join during the query may have a token that is newer than its answer.
        pulls = {id: list(queue.pulls) for id, queue in waiting.items()}
        present = await self.run(partial(_read_consumers, self._using, list(waiting)))
        for id, queue in waiting.items():
            if id not in present:
                queue.end(exceptions.consumer_deleted())
            elif present[id].type != Consumer.Type.PULL:
                queue.end(exceptions.push_consumer())
            elif settings().TOKENS_REQUIRED:
                queue.end_outdated(pulls[id], present[id])


def _make_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop of the running loop's class, if any: uvloop's is twice as fast."""
    try:
        return type(asyncio.get_running_loop())()
    except RuntimeError:
        return asyncio.new_event_loop()


def _read_consumers(using: str, consumer_ids: list[int]) -> dict[int, Consumer]:
    rows = Consumer.objects.using(using).filter(pk__in=consumer_ids, deleted_at=None)
    needed = rows.only("type", "token_digest", "channel__token_digest")
    return {row.pk: row for row in needed.select_related("channel")}


_waiters: Waiters | None = None
_making = threading.Lock()


def process_waiters() -> Waiters:
    """Return the waiters of this process. Start them if it has none."""
    global _waiters
    with _making:
        if _waiters is None:
            _waiters = Waiters()
        stopping.call_before_end(_waiters.stop)
        return _waiters


def running_waiters() -> Waiters | None:
    """Return the waiters of this process, or None if they were not started."""
    return _waiters


def close() -> None:
    """Close the waiters of this process. The next request starts new ones."""
    global _waiters
    with _making:
        waiters, _waiters = _waiters, None
    stopping.restore_handlers()
    if waiters is not None:
        waiters.close()


def _forget() -> None:
    """Forget the waiters in a forked process, which does not have their threads."""
    global _waiters, _making
    _waiters, _making = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
