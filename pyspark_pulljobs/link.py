"""Resources of a stream's owner: sessions, the ownership, a heartbeat and a listener."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

import psycopg
from psycopg.pq import TransactionStatus

from pulljobs.engine.telemetry import LoopFailed, emit
from pulljobs.errors import ConfigurationError, LakeError
from pyspark_pulljobs import heartbeat, ownership
from pyspark_pulljobs.connecting import connect
from pyspark_pulljobs.heartbeat import Heartbeat
from pyspark_pulljobs.session import Session
from pyspark_pulljobs.stream_options import Wanted
from pyspark_pulljobs.waiting import Waiting

PLANS: Final = (
    b"SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off"
)
"""Settings as in a worker: plans must not depend on statistics of a table that just filled."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0
T = TypeVar("T")


class PlannedSession(Session):
    """Session that sets `PLANS` in each transaction: a pooler may switch the connection between."""

    @contextmanager
    def atomic(self) -> Iterator[None]:
        is_outermost = self.connection.info.transaction_status is TransactionStatus.IDLE
        with self.connection.transaction():
            if is_outermost:
                self.connection.execute(PLANS)
            yield


class Link:
    """Open resources of a stream's owner; heartbeats store `report` as the status of the node."""

    def __init__(self, wanted: Wanted, node_id: UUID, report: dict[str, Any]) -> None:
        with ExitStack() as opened:
            self.session = _session(opened, wanted.dsn)
            self.aside = _session(opened, wanted.dsn)
            """Session for calls in another thread."""
            self.owned = ownership.own(self.session, wanted, node_id)
            self._connections = opened.pop_all()
        self.waiting = Waiting(wanted.dsn, self.owned)
        self._report = report
        self._heartbeat = Heartbeat(wanted.dsn, self.owned, report)

    def leave(self) -> None:
        """Give up the stream at once, and close."""
        with closing(self):
            self._heartbeat.end()
            heartbeat.leave(self.session, self.owned, self._report)

    def close(self) -> None:
        self._heartbeat.end()
        self.waiting.close()
        self._connections.close()


def _session(opened: ExitStack, dsn: str) -> Session:
    return PlannedSession(opened.enter_context(closing(connect(dsn))))


class Links:
    """Holder of the current link, which opens a new link after an outage."""

    def __init__(self, wanted: Wanted, report: dict[str, Any]) -> None:
        self._wanted, self._report, self._node_id = wanted, report, uuid4()
        self._link: Link | None = None
        self._was_open = False

    def surviving(self, work: Callable[[Link], T]) -> T:
        """Run the work, and repeat it after database errors until the option `outage` is used up.

        Without this, a query of Spark would end with the first error of its source. An error of the
        first connection is raised at once, because it means a wrong option.
        """
        give_up: float | None = None
        pause = FIRST_PAUSE
        while True:
            try:
                return work(self._opened())
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                reason = str(error).strip().partition("\n")[0]
                self.drop()
                now = time.monotonic()
                give_up = give_up or now + self._wanted.outage.total_seconds()
                if now + pause > give_up:
                    raise LakeError(f"Stream {self._wanted.stream!r} gave up: {reason}") from error
                emit(LoopFailed(f"Stream {self._wanted.stream}", reason, pause))
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def drop(self) -> None:
        if self._link is not None:
            link, self._link = self._link, None
            link.close()

    def leave(self) -> None:
        if self._link is not None:
            link, self._link = self._link, None
            link.leave()

    def _opened(self) -> Link:
        if self._link is None:
            try:
                self._link = Link(self._wanted, self._node_id, self._report)
            except ConfigurationError as error:
                if not self._was_open:
                    raise
                raise psycopg.OperationalError(str(error)) from error
            self._was_open = True
        return self._link
