"""Jobs at an even pace, and their times from the publish to the start of the handler."""

from collections.abc import Sequence
from statistics import median, quantiles
from typing import Final

from benchmarks.peers import databases
from benchmarks.peers.environments import Environment
from benchmarks.peers.measures import PUBLISHERS, Figures
from benchmarks.peers.peer import Peer
from benchmarks.peers.processes import (
    ORDER_SECONDS,
    JobStart,
    Workers,
    order,
    read_output,
    start_order,
    working,
)

SLOW: Final = 100
"""Lowest rate, in jobs a second, that needs several publishers."""
STARTED_SECONDS: Final = 5.0


def measure_latency(
    peer: Peer, environment: Environment, empty: str, rate: float, seconds: float
) -> Figures:
    """Return percentiles in seconds from a publish to its handler, and the share that started."""
    with (
        databases.copied(empty) as database,
        working(peer, environment, database, handler="latency") as workers,
    ):
        warm_up(peer, environment, database, workers)
        before = workers.started()
        publishers = 1 if rate < SLOW else PUBLISHERS
        published = pace(peer, environment, database, "one", rate, seconds, publishers)
        _await_rest(workers, before + published)
        starts = workers.starts(before)
        p50, p99 = percentiles(starts)
        return {"p50": p50, "p99": p99, "started": len(starts) / published}


def percentiles(starts: Sequence[JobStart]) -> tuple[float, float]:
    """Return the 50th and 99th percentile of the waits in seconds.

    Raise StatisticsError for fewer than two jobs.
    """
    waited = [start.waited for start in starts]
    return median(waited), quantiles(waited, n=100, method="inclusive")[98]


def warm_up(peer: Peer, environment: Environment, database: str, workers: Workers) -> None:
    """Publish a job, and wait until the worker has started it."""
    order(peer, environment, database, "pace", "one", 1, 1)
    workers.wait_for_starts(1, STARTED_SECONDS * 4)


def pace(
    peer: Peer,
    environment: Environment,
    database: str,
    how: str,
    rate: float,
    seconds: float,
    publishers: int,
) -> int:
    """Publish `rate` jobs a second from `publishers` processes. Return how many they published."""
    arguments = ("pace", how, rate / publishers, seconds)
    paces = [start_order(peer, environment, database, *arguments) for _ in range(publishers)]
    return sum(read_output(process, seconds + ORDER_SECONDS)["published"] for process in paces)


def _await_rest(workers: Workers, wanted: int) -> None:
    try:
        workers.wait_for_starts(wanted, STARTED_SECONDS)
    except TimeoutError:
        return  # The figure `started` shows the jobs that did not start.
