"""Jobs offered to a peer at an even pace: what was done in time, and how long they waited."""

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from benchmarks.peers import databases
from benchmarks.peers.databases import Connection
from benchmarks.peers.environments import Environment
from benchmarks.peers.latency import pace, percentiles
from benchmarks.peers.measures import PUBLISHERS, Figures
from benchmarks.peers.peer import Peer
from benchmarks.peers.processes import Start, Workers

REST_SECONDS: Final = 20.0
LOOK_SECONDS: Final = 0.1
TENTH: Final = 0.1


class Stretch(NamedTuple):
    """Shares are of what was offered, whoever could not keep up with it."""

    seconds: float
    published_share: float
    dequeued_share: float
    """Done when the time was over, as the database says."""
    started: float
    """Share of the published jobs, some time after the end."""
    starts: Sequence[Start]


def stretch(
    peer: Peer,
    environment: Environment,
    database: str,
    workers: Workers,
    rate: float,
    seconds: float,
) -> Stretch:
    """Publish at that rate, then let the worker come to rest."""
    with databases.connect(database) as session:
        skipped, begin = workers.started(), time.monotonic()
        waiting = databases.left(session, peer)
        published = pace(peer, environment, database, "many", rate, seconds, PUBLISHERS)
        done = waiting + published - databases.left(session, peer)
        _await_rest(peer, session)
    # What a stretch before left to do is none of this one's.
    starts = [start for start in workers.starts(skipped) if start.published >= begin]
    offered = rate * seconds
    started = len(starts) / published if published else 0.0
    return Stretch(seconds, published / offered, done / offered, started, starts)


def _await_rest(peer: Peer, session: Connection) -> None:
    """What a worker still holds when it is killed would be stuck."""
    deadline = time.monotonic() + REST_SECONDS
    while databases.left(session, peer) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)


def beside(during: Stretch, without: Stretch) -> Figures:
    """Of the stretch with a snapshot held; latencies also of the one before."""
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


def _ends(during: Stretch) -> tuple[Sequence[Start], Sequence[Start]]:
    """The jobs published in the first tenth of the time, and in the last."""
    begin = min((start.published for start in during.starts), default=0.0)
    part = TENTH * during.seconds
    first = [start for start in during.starts if start.published < begin + part]
    last = [start for start in during.starts if start.published >= begin + during.seconds - part]
    return first, last


def _percentiles(starts: Sequence[Start]) -> tuple[float, float] | tuple[None, None]:
    """None of fewer than two."""
    return percentiles(starts) if len(starts) > 1 else (None, None)
