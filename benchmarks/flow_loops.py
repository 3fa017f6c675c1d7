"""Loops that claim and finish jobs with prototypes of flow control: rates, keys and fair shares."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final
from uuid import uuid4

import psycopg
from psycopg.rows import namedtuple_row

from benchmarks.database import bare_connection, consumer, query
from benchmarks.loops import ClaimedIds, read_statement
from pulljobs.storage import sessions

FOLDER: Final = "flow"
UNLIMITED: Final = 1e9
"""Rate and burst that never hold a job back: the cost of the mechanism alone."""
ANY_NUMBER: Final = 2_147_483_647
"""Bound of jobs in flight that never holds a job back."""
TICKS: Final = 100
"""Ticks a second of the times in /proc."""
SAMPLED: Final = 10
"""The pages that a claim reads are counted for one claim in this many."""
MOST_CLAIMS: Final = 200
"""Largest number of claims of a drain, which takes very long with few jobs a claim."""
EMPTY_CLAIMS: Final = 5
DISCOVERED: Final = 1_000
"""Largest number of jobs whose keys get turns by a call of `discover` without a number."""
PROOF: Final = "AND pg_visible_in_snapshot(writer, (SELECT pg_current_snapshot()))"
LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)

Row = Any
"""Row of a raw statement, which mypy cannot know."""


@dataclass(frozen=True)
class Limits:
    """Limits of the consumer, as parameters of the statements."""

    per_key: int = ANY_NUMBER
    burst: float = UNLIMITED
    per_second: float = UNLIMITED


@dataclass
class FlowLoop:
    """Loop of the design without limits, and base class of the others."""

    limits: Limits = field(default_factory=Limits)
    is_proved: bool = True
    """True if claims skip rows of keys whose locked version is newer than their snapshot."""
    keys: dict[int, str] = field(default_factory=dict)
    """Keys of the jobs that were claimed, by job id."""
    _mark: tuple[datetime, int] = LONG_AGO, 0

    def __post_init__(self) -> None:
        self.connection = bare_connection()
        for setting in sessions.PLAN_FOR_QUEUES.split(";"):
            self.connection.execute(setting)
        self._consumer_id = consumer().pk

    def claim(self, wanted: int) -> ClaimedIds | None:
        """Claim up to `wanted` jobs, or return None if this claim gets none."""
        lease_token = uuid4()
        rows = self._claim(wanted=wanted, lease_token=lease_token)
        self.keys |= {row.id: row.key for row in rows}
        return ClaimedIds([row.id for row in rows], lease_token) if rows else None

    def finish(self, claimed: ClaimedIds) -> int:
        """Deliver the jobs and return how many were settled."""
        rows = self.run("finish", ids=claimed.ids, lease_token=claimed.lease_token)
        return len(rows)

    def run(self, name: str, **params: object) -> list[Row]:
        """Run a statement of the prototypes and return its rows."""
        cursor = self.send(name, **params)
        return list(cursor.fetchall()) if cursor.description else []

    def send(self, name: str, **params: object) -> psycopg.Cursor[Row]:
        """Run a statement and return its cursor. In a pipeline it may not have an answer yet."""
        text = read_statement(FOLDER, name)
        if not self.is_proved:
            text = text.replace(PROOF, "")
        every = {"consumer_id": self._consumer_id, **vars(self.limits), **params}
        cursor = self.connection.cursor(row_factory=namedtuple_row)
        return cursor.execute(text, every, binary=True)

    def _claim(self, **params: object) -> list[Row]:
        return self._advance(self.run("claim_plain", **self._entry(), **params))

    def _entry(self) -> dict[str, object]:
        return {"mark_at": self._mark[0], "mark_id": self._mark[1]}

    def _advance(self, rows: list[Row]) -> list[Row]:
        self._mark = max([self._mark, *((row.available_at, row.id) for row in rows)])
        return rows


class BucketLoop(FlowLoop):
    """Design with a token bucket for the consumer, locked by a statement before the claim."""

    def __post_init__(self) -> None:
        super().__post_init__()
        query(
            "INSERT INTO raw_flow_bucket (consumer_id, tokens, filled_at)"
            f" VALUES ({self._consumer_id}, {self.limits.burst}, clock_timestamp())"
            " ON CONFLICT DO NOTHING"
        )

    def _claim(self, **params: object) -> list[Row]:
        # One round trip: the claim needs no answer of the lock, only to be a later statement.
        with self.connection.pipeline():
            self.connection.execute("BEGIN")
            self.send("lock_bucket")
            cursor = self.send("claim_bucket", **self._entry(), **params)
            self.connection.execute("COMMIT")
            rows = list(cursor.fetchall())
        return self._advance(rows)


@dataclass
class RingLoop(FlowLoop):
    """Design with a row for each key, which holds its turn, its tokens and its jobs in flight."""

    has_more_to_discover: bool = True
    turn_mark: datetime = LONG_AGO
    """Turns before this time were taken by claims of this loop."""

    def discover(self, most: int = DISCOVERED) -> None:
        """Give turns to the keys of up to `most` jobs that became claimable."""
        [row] = self.run("discover", most=most, **self._entry())
        self.has_more_to_discover = row.jobs == most
        if row.mark_at is not None:
            self._mark = row.mark_at, row.mark_id

    def finish(self, claimed: ClaimedIds) -> int:
        settled = super().finish(claimed)
        if self.limits.per_key < ANY_NUMBER:
            self.run("free_ring", keys=sorted({self.keys[id] for id in claimed.ids}))
        return settled

    def _claim(self, **params: object) -> list[Row]:
        # As many jobs as it claims, as if they were published while the claims go on.
        self.discover(int(str(params["wanted"])))
        rows = self.run("claim_ring", turn_mark=self.turn_mark, **params)
        if rows:
            self.turn_mark = rows[0].turn_mark
        return rows


class SkipLoop(FlowLoop):
    """Design without turns: a claim walks the index on keys from where the last one ended."""

    last_key = ""

    def _claim(self, **params: object) -> list[Row]:
        for start in dict.fromkeys((self.last_key, "")):
            keys = self._find(start, params["wanted"])
            while keys:
                rows = self.run("claim_skip", keys=keys, **params)
                self.last_key = keys[-1]
                if rows:
                    return rows
                keys = self._find(self.last_key, params["wanted"])
        return []

    def _find(self, start: str, most: object) -> list[str]:
        return [row.key for row in self.run("find_skip", cursor=start, most=most)]


class SlotsLoop(FlowLoop):
    """Design that gives each job, in claim order, the next time that the rate of its key allows."""

    def _claim(self, **params: object) -> list[Row]:
        while True:
            keys = [row.key for row in self.run("find_slots", **self._entry(), **params)]
            if not keys:
                return []
            rows = self.run("claim_slots", keys=keys, **self._entry(), **params)
            self._advance(rows)
            taken = [row for row in rows if row.is_taken]
            if taken or not rows:
                return taken


@dataclass
class Drain:
    """Figures of claiming and finishing jobs with one design."""

    claim_seconds: list[float] = field(default_factory=list)
    seconds: float = 0.0
    jobs: int = 0
    cpu_seconds: float = 0.0
    """CPU time of this process and of its server process, with the measurements of pages."""
    pages: list[int] = field(default_factory=list)
    """Pages read by the claims that were sampled."""
    empty_pages: int = 0
    """Median of the pages read by the last claims, which got nothing."""
    empty_seconds: float = 0.0


def drain_flow(loop: FlowLoop, wanted: int) -> Drain:
    """Claim and finish jobs until none can be claimed, or until the limit of claims is reached."""
    drain = Drain()
    cpu = _read_cpu(loop)
    while len(drain.claim_seconds) < MOST_CLAIMS:
        is_sampled = len(drain.claim_seconds) % SAMPLED == 0
        before = read_pages(loop) if is_sampled else 0
        start = time.perf_counter()
        claimed = loop.claim(wanted)
        took = time.perf_counter() - start
        if claimed is None:
            if isinstance(loop, RingLoop) and loop.has_more_to_discover:
                continue
            drain.empty_pages, drain.empty_seconds = measure_empty(loop, wanted)
            break
        if is_sampled:
            drain.pages.append(read_pages(loop) - before - _own_pages(loop))
        drain.claim_seconds.append(took)
        start = time.perf_counter()
        drain.jobs += loop.finish(claimed)
        drain.seconds += took + time.perf_counter() - start
    drain.cpu_seconds = _read_cpu(loop) - cpu
    return drain


def measure_empty(loop: FlowLoop, wanted: int) -> tuple[int, float]:
    """Return the median pages read and seconds of claims of up to `wanted` jobs that get none."""
    pages, times = [], []
    for _ in range(EMPTY_CLAIMS):
        before, start = read_pages(loop), time.perf_counter()
        loop.claim(wanted)
        times.append(time.perf_counter() - start)
        pages.append(read_pages(loop) - before - _own_pages(loop))
    return int(median(pages)), median(times)


def _own_pages(loop: FlowLoop) -> int:
    """Return the number of pages that a call of `read_pages` itself reads."""
    before = read_pages(loop)
    return read_pages(loop) - before


def _read_cpu(loop: FlowLoop) -> float:
    """Return the CPU seconds of this process and the server process of the loop's connection."""
    stat = Path(f"/proc/{loop.connection.info.backend_pid}/stat")
    fields = stat.read_text().rpartition(")")[2].split() if stat.exists() else ["0"] * 13
    return time.process_time() + (int(fields[11]) + int(fields[12])) / TICKS


def read_pages(loop: FlowLoop) -> int:
    """Return how many pages the database has read so far, from its cache or from the disk."""
    with loop.connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(
            "SELECT (blks_hit + blks_read)::text FROM pg_stat_database"
            " WHERE datname = current_database()"
        )
        row = cursor.fetchone()
    return int(str(row[0])) if row else 0


def queue_flow(keys: int) -> None:
    """Empty the tables, and queue a job for every message, with `keys` keys (0: without keys)."""
    names = ("job", "lease", "bucket", "key")
    query(f"TRUNCATE pulljobs_archived_job, {', '.join(f'raw_flow_{name}' for name in names)}")
    query(read_statement(FOLDER, "fill").replace("%%", "%").replace("%(keys)s", str(keys)))
    query("VACUUM ANALYZE raw_flow_job")
    query("CHECKPOINT")


@contextmanager
def made(loop: Callable[[], FlowLoop]) -> Iterator[FlowLoop]:
    """Make a loop, and close its connection at the end."""
    ready = loop()
    try:
        yield ready
    finally:
        ready.connection.close()
