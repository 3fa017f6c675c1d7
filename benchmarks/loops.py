"""Loops that claim and finish jobs and do nothing in between: raw designs, and pulljobs itself."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, Protocol
from uuid import UUID, uuid4

import psycopg

from benchmarks.database import EMPTIED, bare_connection, consumer, query
from pulljobs import pulling
from pulljobs.conf import settings
from pulljobs.engine.encodings import integer_array
from pulljobs.engine.outcomes import Held, deliver
from pulljobs.engine.sql import statement
from pulljobs.models import Consumer
from pulljobs.storage import sessions

RAW: Final = Path(__file__).parent / "raw"
DESIGNS: Final = ("hot", "hot_lease", "array_lease", "state_index")
OURS: Final = "pulljobs"
QUEUE_OURS: Final = (
    "INSERT INTO pulljobs_job"
    " (consumer_id, message_id, available_at, priority, state, retry_count, deliveries)"
    " SELECT consumer_id, message_id, available_at, priority, 'QUEUED', 0, 0"
    " FROM queued ORDER BY id"
)

Row = tuple[object, ...]


class ClaimedIds(NamedTuple):
    """Ids of the jobs of one claim, and its lease token."""

    ids: list[int]
    lease_token: UUID


class Loop(Protocol):
    """Loop that claims and finishes jobs by one design on one connection."""

    def claim(self, wanted: int) -> ClaimedIds | None:
        """Claim jobs and read their messages. Return None if there are none to claim."""

    def finish(self, claimed: ClaimedIds) -> int:
        """Deliver the jobs and return how many were settled."""


class RawLoop:
    """Loop of a raw design on a bare psycopg connection, with prepared statements in binary."""

    def __init__(self, design: str) -> None:
        self._text = {name: read_statement(design, name) for name in ("claim", "finish")}
        # A join with the messages in the claim was measured: it costs more than a second statement.
        self._text["messages"] = statement("messages")
        self._cursor = psycopg.Cursor(bare_connection())
        for setting in sessions.PLAN_FOR_QUEUES.split(";"):
            self._cursor.execute(setting)
        self._consumer_id = consumer().pk
        self._mark: tuple[datetime, int] = datetime.min.replace(tzinfo=UTC), 0

    def claim(self, wanted: int) -> ClaimedIds | None:
        lease_token = uuid4()
        rows = self._run(
            "claim",
            consumer_id=self._consumer_id,
            wanted=wanted,
            lease_token=lease_token,
            mark_at=self._mark[0],
            mark_id=self._mark[1],
        )
        if not rows:
            return None
        self._mark = max((row[1], row[0]) for row in rows)  # type: ignore[assignment]  # rows are untyped
        messages: list[int] = [row[2] for row in rows]  # type: ignore[misc]  # rows are untyped
        self._run(
            "messages", ids=integer_array(messages), lowest=min(messages), highest=max(messages)
        )
        return ClaimedIds([row[0] for row in rows], lease_token)  # type: ignore[misc]  # rows are untyped

    def finish(self, claimed: ClaimedIds) -> int:
        params = {"ids": integer_array(claimed.ids), "lease_token": claimed.lease_token}
        return len(self._run("finish", **params))

    def _run(self, name: str, **params: object) -> list[Row]:
        return self._cursor.execute(self._text[name], params, binary=True).fetchall()


class OurLoop:
    """Loop of pulljobs, which claims and finishes as the worker does, with the same settings."""

    def __init__(self, design: str = OURS, served: Consumer | None = None) -> None:
        sessions.dedicate(settings().DATABASE)
        self._puller = pulling.Puller(settings().DATABASE, served or consumer())

    def claim(self, wanted: int) -> ClaimedIds | None:
        claim = self._puller.claim(wanted)
        if claim.taken is None:
            return None
        return ClaimedIds([job.id for job, _message in claim.jobs], claim.taken.lease_token)

    def finish(self, claimed: ClaimedIds) -> int:
        run = PastRun(time.monotonic(), 0.0)
        helds = [Held(id, claimed.lease_token) for id in claimed.ids]
        done = pulling.finish([deliver(held, run=run) for held in helds])
        return len(done.states)


class PastRun(NamedTuple):
    """Run of a handler that has ended, on the monotonic clock."""

    begun_at: float
    run_seconds: float


def make_loop(design: str) -> Loop:
    """Return a loop of pulljobs or of a raw design, on a connection of its own."""
    return OurLoop() if design == OURS else RawLoop(design)


@cache
def read_statement(design: str, name: str) -> str:
    """Return the SQL in the file `name` of a raw design."""
    return (RAW / design / f"{name}.sql").read_text()


def make_tables() -> None:
    """Create the tables of all raw designs."""
    for design in DESIGNS:
        query(read_statement(design, "schema"))


def queue_all(design: str) -> None:
    """Queue a job for every message, for this design only, and empty the archive.

    The vacuum and the checkpoint leave a server that has nothing else to do.
    """
    query(f"TRUNCATE {EMPTIED}, {', '.join(_raw_tables())}")
    query(QUEUE_OURS if design == OURS else read_statement(design, "fill"))
    query("VACUUM ANALYZE")
    query("CHECKPOINT")


def _raw_tables() -> list[str]:
    rows = query(r"SELECT relname FROM pg_class WHERE relname LIKE 'raw\_%' AND relkind = 'r'")
    return [str(name) for (name,) in rows]


def drain(loop: Loop, batch: int, *, clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """Claim and finish until nothing is left. Return the seconds of each claim in order."""
    took: list[float] = []
    while True:
        start = clock()
        claimed = loop.claim(batch)
        if claimed is None:
            return took
        took.append(clock() - start)
        loop.finish(claimed)
