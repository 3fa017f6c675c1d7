"""Resources of a stream's owner: connections, ownership, and threads for heartbeat and reaping."""

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

import psycopg

from pulljobs.engine.telemetry import LoopFailed, emit
from pulljobs.errors import ConfigurationError, LakeError
from pyspark_pulljobs import heartbeat, ownership
from pyspark_pulljobs.connecting import connect
from pyspark_pulljobs.database_session import PlannedSession, Session
from pyspark_pulljobs.heartbeat import Heartbeat
from pyspark_pulljobs.reaping import StreamReaper
from pyspark_pulljobs.stream_options import StreamOptions
from pyspark_pulljobs.waiting import Listener

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0
T = TypeVar("T")


class Link:
    """Open resources of a stream's owner, which are all closed after a database error.

    Heartbeats store `report` as the status of the node.
    """

    def __init__(self, options: StreamOptions, node_id: UUID, report: dict[str, Any]) -> None:
        with ExitStack() as resources:
            self.session = _open_session(resources, options.dsn)
            self.background_session = _open_session(resources, options.dsn)
            """Session for calls in another thread."""
            self.owned = ownership.own(self.session, options, node_id)
            self._resources = resources.pop_all()
        self.listener = Listener(options.dsn, self.owned)
        self._report = report
        self._reaper = StreamReaper(options.dsn)
        self._heartbeat = Heartbeat(options.dsn, self.owned, report)

    def leave(self) -> None:
        """Give up the stream, so that another process can own it at once, and close everything."""
        with closing(self):
            self._heartbeat.end()
            heartbeat.leave(self.session, self.owned, self._report)

    def close(self) -> None:
        self._reaper.end()
        self._heartbeat.end()
        self.listener.close()
        self._resources.close()


def _open_session(resources: ExitStack, dsn: str) -> Session:
    return PlannedSession(resources.enter_context(closing(connect(dsn))))


class Links:
    """Holder of the stream's link, which opens a new link after an outage of the database."""

    def __init__(self, options: StreamOptions, report: dict[str, Any]) -> None:
        self._options, self._report, self._node_id = options, report, uuid4()
        self._link: Link | None = None
        self._was_open = False

    def run(self, work: Callable[[Link], T]) -> T:
        """Call `work` with the link, and again with a new link if the server or connection fails.

        LakeError is raised if the outage would last longer than the option `outage`. If calls
        were not repeated, the first error of the source would end the query. A failure of the very
        first connection is a ConfigurationError at once, because it means a wrong option.
        """
        give_up: float | None = None
        pause = FIRST_PAUSE
        while True:
            try:
                return work(self._open_link())
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                reason = str(error).strip().partition("\n")[0]
                self.drop()
                now = time.monotonic()
                give_up = give_up or now + self._options.outage.total_seconds()
                if now + pause > give_up:
                    raise LakeError(f"Stream {self._options.stream!r} gave up: {reason}") from error
                emit(LoopFailed(f"Stream {self._options.stream}", reason, pause))
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def drop(self) -> None:
        """Close the link. This process stays the owner until its heartbeats are overdue."""
        if self._link is not None:
            link, self._link = self._link, None
            link.close()

    def leave(self) -> None:
        """Give up the stream, so that another process can own it at once, and close the link."""
        if self._link is not None:
            link, self._link = self._link, None
            link.leave()

    def _open_link(self) -> Link:
        """Return the open link, or open a new one.

        A failure is a ConfigurationError the first time. Later it is raised as a database error,
        after which `run` tries again.
        """
        if self._link is None:
            try:
                self._link = Link(self._options, self._node_id, self._report)
            except ConfigurationError as error:
                if not self._was_open:
                    raise
                raise psycopg.OperationalError(str(error)) from error
            self._was_open = True
        return self._link
