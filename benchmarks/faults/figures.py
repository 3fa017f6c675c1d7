"""Counts and rates of a run."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.faults.checker import Case
from benchmarks.faults.history import (
    ANSWERED,
    CLAIMED,
    DELIVERED,
    LOST,
    PUBLISHED,
    RENEWED,
    THROTTLED,
    Line,
)
from benchmarks.faults.job_claims import NEVER, JobClaim
from benchmarks.faults.server import Restart

BEFORE: Final = 5.0
"""Seconds before a stop in which the earlier rate is measured."""
AFTER: Final = 15.0
WINDOW: Final = 3.0
STEP: Final = 0.25


def count_events(case: Case) -> dict[str, Any]:
    """Return the counts of a run by the names under which the report prints them."""
    answers = Counter(line.outcome for line in case.lines if line.event == ANSWERED)
    acknowledged = case.jobs(PUBLISHED)
    claims = [claim for claims in case.claims.by_job.values() for claim in claims]
    return {
        "acknowledged": len(acknowledged),
        "lost": sum(job not in case.tables for job in acknowledged),
        "delivered": sum(bool(case.tables.delivered(job)) for job in case.tables.archived),
        "claims": len(claims),
        "renewals": sum(line.event == RENEWED for line in case.lines),
        "throttles": sum(line.event == THROTTLED for line in case.lines),
        "late settles refused": answers[LOST],
        "of them of jobs taken by others": _taken_meanwhile(case),
        "held at the kills": sum(_was_held_at_its_kill(claim, case.lines) for claim in claims),
        "run twice unasked": _run_twice(case),
    }


def _was_held_at_its_kill(claim: JobClaim, lines: Sequence[Line]) -> bool:
    return claim.killed_at < NEVER and all(line.at > claim.killed_at for line in claim.accepted)


def _run_twice(case: Case) -> int:
    """Count the jobs that ran again although no handler had asked for it."""
    return sum(
        sum(bool(claim.started) and not claim.may_have_returned for claim in claims) > 1
        for claims in case.claims.by_job.values()
    )


def _taken_meanwhile(case: Case) -> int:
    return sum(
        any(line.outcome == LOST for line in claim.lines[ANSWERED])
        for claims in case.claims.by_job.values()
        for claim in claims[:-1]
    )


def claim_shares(case: Case) -> dict[int, float]:
    """Return the share that each process has of all claims, by process id."""
    claims = Counter(line.process for line in case.lines if line.event == CLAIMED)
    return {process: count / claims.total() for process, count in claims.items()}


def recoveries(case: Case, restarts: Sequence[Restart]) -> list[dict[str, float]]:
    """Return the deliveries a second before and after each restart, and the recovery time.

    The recovery time is in seconds, until the rate is 95 % of the rate before, or infinite. The
    rate after is the best of the 15 seconds after the restart.
    """
    times = [line.at for line in case.lines if line.event == ANSWERED and line.outcome == DELIVERED]
    return [_recovery(times, restart) for restart in restarts]


def _recovery(times: Sequence[float], restart: Restart) -> dict[str, float]:
    before = _rate(times, restart.stopped_at - BEFORE, restart.stopped_at)
    ends = [restart.started_at + STEP * step for step in range(1, int(AFTER / STEP) + 1)]
    rates = {
        end - restart.started_at: _rate(times, max(end - WINDOW, restart.started_at), end)
        for end in ends
        if end - restart.started_at >= WINDOW
    }
    reached = [after for after, rate in rates.items() if rate >= 0.95 * before]
    return {
        "before": round(before),
        "after": round(max(rates.values())),
        "ratio": round(max(rates.values()) / before, 3) if before else 0.0,
        "seconds": min(reached, default=float("inf")),
    }


def _rate(times: Sequence[float], since: float, until: float) -> float:
    return sum(since <= at < until for at in times) / (until - since)
