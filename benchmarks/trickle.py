"""Few jobs a second for a long time, without and with a snapshot held by another session."""

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, NamedTuple

from django.db import connections, transaction

from benchmarks.contenders import FORK, run_in_processes
from benchmarks.database import CHANNEL, query
from benchmarks.loops import OurLoop, make_tables
from benchmarks.pinned import held_snapshot
from benchmarks.report import percentiles, print_report, spread, tenths
from pulljobs.publishing import publish_many

JOBS_PER_SECOND: Final = 800
BURST: Final = 8
SLOW_PUBLISHERS: Final = 12
OPEN_SECONDS: Final = 5.0
CLAIM: Final = 100
LEAST_SECONDS: Final = 3.0
IDLE_SECONDS: Final = 0.005
REST_SECONDS: Final = 0.1
"""Pause between claims once nothing is published any more: these claims are not timed."""
GRACE: Final = timedelta(seconds=15)
WITHOUT: Final = 0.1
"""Length of the stretch without a snapshot, as a share of the stretch with a snapshot."""

Times = dict[int, float]
"""Unix times by job id."""


class ClaimTimes(NamedTuple):
    """Durations of the claims of a process, and the time at which each job was claimed."""

    claims: list[float]
    """Seconds of each claim while publishers ran."""
    claimed: Times


class SteadyLoad(NamedTuple):
    """Claims and commits of one stretch of steady load."""

    end: float
    worked: ClaimTimes
    commits: list[Times]
    """Commit times of each publisher, the publisher of short transactions first."""


def measure_trickle(minutes: float, *, slow: bool, as_json: bool) -> None:
    """Publish and claim without and then with a snapshot held, and compare the claims.

    With `slow`, other publishers join, whose transactions stay open and overlap.
    """
    make_tables()
    query("VACUUM ANALYZE")
    without = _stretch(max(WITHOUT * minutes * 60, LEAST_SECONDS), slow=slow)
    with held_snapshot():
        during = _stretch(minutes * 60, slow=slow)
    _report(during, without, minutes, as_json=as_json)


def _stretch(seconds: float, *, slow: bool) -> SteadyLoad:
    end = time.time() + seconds
    publishing = FORK.Value("i", 2 if slow else 1)
    works: list[Callable[[], Any]] = [lambda: _claim(publishing), lambda: _publish(end, publishing)]
    if slow:
        works.append(lambda: _publish_slowly(end, publishing))
    worked, *commits = run_in_processes(works)
    return SteadyLoad(end, worked, commits)


def _report(during: SteadyLoad, without: SteadyLoad, minutes: float, *, as_json: bool) -> None:
    _end, worked, commits = during
    committed = {job: at for times in commits for job, at in times.items()}
    skipped = committed.keys() - worked.claimed.keys()
    first, last = tenths(worked.claims)
    (p50, p99), (late50, late99) = percentiles(first), percentiles(last)
    _p50, p99_without = percentiles(without.worked.claims)
    rows = [
        {"publishers": name, "jobs": len(times), **_delays(times, worked.claimed)}
        for name, times in zip(("quick", f"open {OPEN_SECONDS:g} s"), commits, strict=False)
    ]
    claims = [
        {
            "claims": len(worked.claims),
            "p50 / p99 ms, without": spread(without.worked.claims),
            "first tenth": spread(first),
            "last tenth": spread(last),
        }
    ]
    figures = {
        "skipped": len(skipped),
        "dequeued_share": round(_dequeued(during) / (minutes * 60 * JOBS_PER_SECOND), 4),
        "longest_delay_seconds": round(max(row["longest s"] for row in rows), 3),
        "claim_p50_growth": round(late50 / p50, 2),
        "claim_p99_growth": round(late99 / p99, 2),
        "claim_p99_of_without": round(late99 / p99_without, 2),
    }
    tables = {
        f"{minutes:g} minutes with a snapshot held: from commit to claim": rows,
        "Claims": claims,
    }
    print_report(tables, figures, as_json=as_json)


def _dequeued(during: SteadyLoad) -> int:
    """Return how many jobs of short transactions were claimed by the end of the load."""
    claimed = during.worked.claimed
    return sum(job in claimed and claimed[job] <= during.end for job in during.commits[0])


def _delays(committed: Times, claimed: Times) -> dict[str, Any]:
    late = [claimed[job] - at for job, at in committed.items() if job in claimed]
    return {"p50 / p99 ms": spread(late), "longest s": max(late, default=0.0)}


def _claim(publishing: Any) -> ClaimTimes:
    """Claim until all publishers have stopped and no job was found for 15 seconds."""
    loop, worked = OurLoop(), ClaimTimes([], {})
    quiet_since = time.time()
    while publishing.value or time.time() - quiet_since < GRACE.total_seconds():
        start = time.time()
        claimed = loop.claim(CLAIM)
        now = time.time()
        if publishing.value:
            worked.claims.append(now - start)
        if claimed is None:
            time.sleep(IDLE_SECONDS if publishing.value else REST_SECONDS)
            continue
        worked.claimed.update(dict.fromkeys(claimed.ids, now))
        loop.finish(claimed)
        quiet_since = now
    return worked


def _publish(end: float, publishing: Any) -> Times:
    """Publish bursts of jobs at an even pace until `end`. Return the commit time of each job."""
    committed: Times = {}
    due = time.time()
    while due < end:
        time.sleep(max(0.0, due - time.time()))
        ids = _publish_burst()
        committed |= dict.fromkeys(ids, time.time())
        due += BURST / JOBS_PER_SECOND
    _count_down(publishing)
    return committed


def _publish_slowly(end: float, publishing: Any) -> Times:
    """Publish in transactions that stay open and overlap. Return the commit time of each job."""
    committed: Times = {}

    def publish(number: int) -> None:
        time.sleep(number * OPEN_SECONDS / SLOW_PUBLISHERS)
        while time.time() < end:
            with transaction.atomic():
                ids = _publish_burst()
                time.sleep(OPEN_SECONDS)
            committed.update(dict.fromkeys(ids, time.time()))
        connections.close_all()

    threads = [threading.Thread(target=publish, args=[number]) for number in range(SLOW_PUBLISHERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _count_down(publishing)
    return committed


def _publish_burst() -> list[int]:
    return [job for receipt in publish_many(CHANNEL, [b"x"] * BURST) for job in receipt.job_ids]


def _count_down(publishing: Any) -> None:
    with publishing.get_lock():
        publishing.value -= 1
