"""Load of jobs at an even pace: the share done in time, and how long the jobs waited."""

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from benchmarks.peers import databases
from benchmarks.peers.databases import Connection
from benchmarks.peers.environments import Environment
from benchmarks.peers.latency import pace, percentiles
from benchmarks.peers.measures import PUBLISHERS, Figures
from benchmarks.peers.peer import Peer
from benchmarks.peers.processes import JobStart, Workers

REST_SECONDS: Final = 20.0
LOOK_SECONDS: Final = 0.1
TENTH: Final = 0.1


class OfferedLoad(NamedTuple):
    """Figures of a time of steady load. Both shares are of the jobs that were to be published."""

    seconds: float
    published_share: float
    dequeued_share: float
    """Share of the jobs that were done when the time was over, as the database shows."""
    started: float
    """Share of the published jobs that had started when the wait for the rest ended."""
    starts: Sequence[JobStart]


def measure_load(
    peer: Peer,
    environment: Environment,
    database: str,
    workers: Workers,
    rate: float,
    seconds: float,
) -> OfferedLoad:
    """Publish at a rate, wait up to 20 s for the rest of the jobs, and return the figures."""
    with databases.connect(database) as session:
        skipped, begin = workers.started(), time.monotonic()
        waiting = databases.count_left(session, peer)
        published = pace(peer, environment, database, "many", rate, seconds, PUBLISHERS)
        done = waiting + published - databases.count_left(session, peer)
        _await_rest(peer, session)
    # Jobs that an earlier load left do not count.
    starts = [start for start in workers.starts(skipped) if start.published >= begin]
    offered = rate * seconds
    started = len(starts) / published if published else 0.0
    return OfferedLoad(seconds, published / offered, done / offered, started, starts)


def _await_rest(peer: Peer, session: Connection) -> None:
    """Wait until no job is left, at most 20 s: the jobs of a killed worker may stay claimed."""
    deadline = time.monotonic() + REST_SECONDS
    while databases.count_left(session, peer) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)


def compare_loads(during: OfferedLoad, without: OfferedLoad) -> Figures:
    """Return shares and latencies in seconds of a load with a snapshot held and of one without."""
    first, last = _ends(during)
    p50, p99 = _percentiles(without.starts)
    first50, first99 = _percentiles(first)
    last50, last99 = _percentiles(last)
    return {
        "published_share": during.published_share,
        "dequeued_share": during.dequeued_share,
        "dequeued_share_without": without.dequeued_share,
        "started": during.started,
        "p50_without": p50,
        "p99_without": p99,
        "p50_first": first50,
        "p99_first": first99,
        "p50_last": last50,
        "p99_last": last99,
        "p99_growth": last99 / p99 if p99 and last99 else None,
    }


def _ends(during: OfferedLoad) -> tuple[Sequence[JobStart], Sequence[JobStart]]:
    """Return the jobs that were published in the first and in the last tenth of a load."""
    begin = min((start.published for start in during.starts), default=0.0)
    part = TENTH * during.seconds
    first = [start for start in during.starts if start.published < begin + part]
    last = [start for start in during.starts if start.published >= begin + during.seconds - part]
    return first, last


def _percentiles(starts: Sequence[JobStart]) -> tuple[float, float] | tuple[None, None]:
    """Return the 50th and 99th percentile of the waits in seconds, two None for under two jobs."""
    return percentiles(starts) if len(starts) > 1 else (None, None)
