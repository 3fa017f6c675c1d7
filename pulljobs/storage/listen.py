"""Notifications that wake waiters: NOTIFY after a commit, LISTEN on a separate connection.

They only shorten waits. Waiters poll as well, so a lost notification costs one poll interval.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, closing
from datetime import timedelta
from typing import Any, Final, LiteralString
from uuid import UUID

import psycopg
from django.db import connections
from psycopg import sql

from pulljobs.engine.connection_bounds import with_bounds
from pulljobs.engine.deadlines import Deadline, shut_down
from pulljobs.engine.encodings import integer_array
from pulljobs.engine.full_queue import notify
from pulljobs.engine.sql import DATABASE_CHANNEL
from pulljobs.models import PullWaiter
from pulljobs.storage.statements import run
from pulljobs.storage.transactions import after_commit, call_on_commit

LOST_CHANNEL: Final = "pulljobs_lost"
NEW: Final = timedelta(seconds=0.05)
"""Time until a new waiter polls again, as a publish may have read the waiters just before."""
PROBE_SECONDS: Final = 30.0
"""Time between two queries that check if a connection still answers."""
ANSWER_SECONDS: Final = 10.0
"""Time that an answer may take before its connection is cut."""
LOST_TOGETHER: Final = 300
"""Number of job ids in one notification, whose payload may have 8000 bytes."""


def wake_on_commit(using: str, consumer_ids: Iterable[int]) -> None:
    """Wake the waiters of these consumers after the commit of the caller's transaction."""
    if waking := frozenset(consumer_ids):
        wake_found_on_commit(using, lambda: waking)


def wake_found_on_commit(using: str, find: Callable[[], Iterable[int]]) -> None:
    """Call `find` after the commit, and wake the waiters of the consumers whose ids it returns.

    If the caller manages the transaction by hand, Django reports no commit: polling finds the jobs.
    """
    notify_on_commit(using, lambda: wake(using, sorted(find())))


def notify_on_commit(using: str, send: Callable[[], None]) -> None:
    """Call `send` after the commit of the caller's transaction, and log its database errors."""

    def work() -> None:
        with after_commit(using, "a notification"):
            notify(send)

    call_on_commit(using, work)


def wake(using: str, consumer_ids: Sequence[int]) -> None:
    """Wake the waiters of these consumers, in a transaction that does not wait for the disk."""
    params: dict[str, object] = {"database_channel": DATABASE_CHANNEL}
    if len(consumer_ids) == 1:
        run(using, "notify_one", params | {"consumer_id": consumer_ids[0]}, always_prepare=True)
    else:
        params["consumer_ids"] = integer_array(consumer_ids)
        run(using, "notify", params, always_prepare=True)


def notify_lost_on_commit(using: str, job_ids: Sequence[int]) -> None:
    """Notify all workers after the commit that these jobs were taken from their leases."""
    if job_ids:
        notify_on_commit(using, lambda: _notify_lost(using, job_ids))


def _notify_lost(using: str, job_ids: Sequence[int]) -> None:
    with connections[using].cursor() as cursor:
        for start in range(0, len(job_ids), LOST_TOGETHER):
            together = ",".join(map(str, job_ids[start : start + LOST_TOGETHER]))
            cursor.execute("SELECT pg_notify(%s, %s)", [LOST_CHANNEL, together])


def wait(
    using: str,
    consumer_ids: Sequence[int],
    node_id: UUID,
    patience: timedelta,
    pulls: Sequence[int] = (),
) -> dict[int, int]:
    """Register this process, the node `node_id`, as a waiter of these consumers for `patience`.

    From then on publishers notify it. The caller commits, claims once more, and only then waits, so
    that no publish in between is missed. `pulls` has the number of HTTP pulls that wait in this
    process for each consumer. Return by consumer id how many wait in other processes.
    """
    params = {
        "consumer_ids": list(consumer_ids),
        "pulls": list(pulls or [0] * len(consumer_ids)),
        "node_id": node_id,
        "patience": patience,
    }
    return {row.consumer_id: row.elsewhere for row in run(using, "wait", params)}


def leave(using: str, consumer_ids: Sequence[int], node_id: UUID) -> None:
    """Remove this process, the node `node_id`, from the waiters of these consumers."""
    rows = PullWaiter.objects.using(using).filter(node_id=node_id)
    rows.filter(consumer_id__in=consumer_ids).delete()


class Listener:
    """Connection that receives notifications of new jobs of all consumers, and of lost jobs.

    `on_lost` is called with the ids of jobs that were taken from their leases. `wakers` has a
    function for each further PostgreSQL channel, called without arguments on a notification.
    """

    def __init__(
        self,
        using: str,
        on_lost: Callable[[list[int]], None] | None = None,
        wakers: Mapping[str, Callable[[], None]] | None = None,
    ) -> None:
        self._on_lost, self._wakers = on_lost, wakers or {}
        self._connection: psycopg.Connection[Any] = psycopg.connect(**make_connection_params(using))
        lost = () if on_lost is None else (LOST_CHANNEL,)
        with ExitStack() as opened:  # The caller gets no listener to close if a LISTEN fails.
            opened.enter_context(closing(self._connection))
            for channel in (DATABASE_CHANNEL, *lost, *self._wakers):
                self._ask(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            opened.pop_all()

    def receive(self, timeout: timedelta) -> set[int]:
        """Wait for one notification and return the ids of consumers with new jobs.

        The set is empty after the timeout and after other notifications. Raise psycopg.Error if
        the connection is lost or silent.
        """
        if time.monotonic() >= self._probed_at + PROBE_SECONDS:
            self._ask("SELECT")
        seconds = timeout.total_seconds()
        consumer_ids = set()
        for notification in self._connection.notifies(timeout=seconds, stop_after=1):
            if notification.channel == DATABASE_CHANNEL:
                consumer_ids.add(int(notification.payload))
            elif notification.channel in self._wakers:
                self._wakers[notification.channel]()
            elif self._on_lost is not None:
                self._on_lost(list(map(int, notification.payload.split(","))))
        return consumer_ids

    def close(self) -> None:
        self._connection.close()

    def _ask(self, text: LiteralString | sql.Composed) -> None:
        with Deadline(self._connection, ANSWER_SECONDS):
            self._connection.execute(text)
        self._probed_at = time.monotonic()


@asynccontextmanager
async def listening(params: Mapping[str, Any]) -> AsyncIterator[AsyncIterator[int]]:
    """Open a connection on the running event loop, and yield an iterator of notified consumer ids.

    `params` come from `make_connection_params`. The iterator raises psycopg.Error if the connection
    is lost or silent.
    """
    async with await psycopg.AsyncConnection.connect(**params) as connection:
        await _ask(connection, f"LISTEN {DATABASE_CHANNEL}")
        yield _receive(connection)


async def _receive(connection: psycopg.AsyncConnection[Any]) -> AsyncIterator[int]:
    while True:
        async for notification in connection.notifies(timeout=PROBE_SECONDS):
            yield int(notification.payload)
        await _ask(connection, "SELECT")


async def _ask(connection: psycopg.AsyncConnection[Any], text: LiteralString) -> None:
    """Execute a statement, and cut the connection if the answer takes over ten seconds."""
    # A cancelled task would wait for the server, so the end of the wait must come from the socket.
    timer = asyncio.get_running_loop().call_later(ANSWER_SECONDS, shut_down, connection)
    try:
        await connection.execute(text)
    finally:
        timer.cancel()


def make_connection_params(using: str) -> dict[str, Any]:
    """Return psycopg's parameters for a connection that is separate from Django's.

    Django connects first, and raises OperationalError if the server can't be reached.
    """
    connection = connections[using]
    connection.ensure_connection()
    params = connection.get_connection_params()
    params.pop("cursor_factory", None)
    params.pop("context", None)
    return {**with_bounds(params), "autocommit": True}
