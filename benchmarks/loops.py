"""Loops that claim and finish with nothing between: the raw designs', and ours without a worker."""

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
from pulljobs.storage import statements

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


class Claimed(NamedTuple):
    ids: list[int]
    token: UUID


class Loop(Protocol):
    def claim(self, wanted: int) -> Claimed | None:
        """With payloads; None: nothing there."""

    def finish(self, claimed: Claimed) -> int:
        """How many were settled."""


class RawLoop:
    """One design on a bare psycopg connection: binary, prepared, one thread."""

    def __init__(self, design: str) -> None:
        self._text = {name: text(design, name) for name in ("claim", "finish")}
        # In the claim, the join with the messages costs more than this second statement: measured.
        self._text["messages"] = statement("messages")
        self._cursor = psycopg.Cursor(bare_connection())
        for setting in statements.PLAN_FOR_QUEUES.split(";"):
            self._cursor.execute(setting)
        self._consumer_id = consumer().pk
        self._floor: tuple[datetime, int] = datetime.min.replace(tzinfo=UTC), 0

    def claim(self, wanted: int) -> Claimed | None:
        token = uuid4()
        rows = self._run(
            "claim",
            consumer_id=self._consumer_id,
            wanted=wanted,
            token=token,
            floor_at=self._floor[0],
            floor_id=self._floor[1],
        )
        if not rows:
            return None
        self._floor = max((row[1], row[0]) for row in rows)  # type: ignore[assignment]  # rows are untyped
        messages: list[int] = [row[2] for row in rows]  # type: ignore[misc]  # likewise
        self._run(
            "messages", ids=integer_array(messages), lowest=min(messages), highest=max(messages)
        )
        return Claimed([row[0] for row in rows], token)  # type: ignore[misc]  # likewise

    def finish(self, claimed: Claimed) -> int:
        return len(self._run("finish", ids=integer_array(claimed.ids), token=claimed.token))

    def _run(self, name: str, **params: object) -> list[Row]:
        return self._cursor.execute(self._text[name], params, binary=True).fetchall()


class OurLoop:
    """The claim and the finish that the worker calls, on a connection like its own."""

    def __init__(self, design: str = OURS) -> None:
        statements.dedicate(settings().DATABASE)
        self._puller = pulling.Puller(settings().DATABASE, consumer())

    def claim(self, wanted: int) -> Claimed | None:
        claim = self._puller.claim(wanted)
        if claim.taken is None:
            return None
        return Claimed([job.id for job, _message in claim.jobs], claim.taken.token)

    def finish(self, claimed: Claimed) -> int:
        done = pulling.finish([deliver(Held(id, claimed.token)) for id in claimed.ids])
        return len(done.states)


def loop_of(design: str) -> Loop:
    return OurLoop() if design == OURS else RawLoop(design)


@cache
def text(design: str, name: str) -> str:
    return (RAW / design / f"{name}.sql").read_text()


def make_tables() -> None:
    for design in DESIGNS:
        query(text(design, "schema"))


def queue_all(design: str) -> None:
    """A job a message for this design, none for the others, and an empty archive; a calm server."""
    query(f"TRUNCATE {EMPTIED}, {', '.join(_raw_tables())}")
    query(QUEUE_OURS if design == OURS else text(design, "fill"))
    query("VACUUM ANALYZE")
    query("CHECKPOINT")


def _raw_tables() -> list[str]:
    rows = query(r"SELECT relname FROM pg_class WHERE relname LIKE 'raw\_%' AND relkind = 'r'")
    return [str(name) for (name,) in rows]


def drain(loop: Loop, batch: int, *, clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """Claim and finish until nothing is left: how long each claim took."""
    took: list[float] = []
    while True:
        start = clock()
        claimed = loop.claim(batch)
        if claimed is None:
            return took
        took.append(clock() - start)
        loop.finish(claimed)
