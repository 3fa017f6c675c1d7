"""What a run counted, beside its verdict."""

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
    Line,
)
from benchmarks.faults.server import Start
from benchmarks.faults.tenures import NEVER, Tenure

BEFORE: Final = 5.0
"""Seconds before a stop whose rate counts as the earlier one."""
AFTER: Final = 15.0
WINDOW: Final = 3.0
STEP: Final = 0.25


def counts(case: Case) -> dict[str, Any]:
    answers = Counter(line.said for line in case.lines if line.event == ANSWERED)
    acknowledged = case.jobs(PUBLISHED)
    every = [tenure for tenures in case.tenures.by_job.values() for tenure in tenures]
    return {
        "acknowledged": len(acknowledged),
        "lost": sum(job not in case.tables for job in acknowledged),
        "delivered": sum(bool(case.tables.delivered(job)) for job in case.tables.archived),
        "claims": len(every),
        "renewals": sum(line.event == RENEWED for line in case.lines),
        "late settles refused": answers[LOST],
        "of them of jobs taken by others": _taken_meanwhile(case),
        "held at the kills": sum(_was_held_at_its_kill(tenure, case.lines) for tenure in every),
        "run twice unasked": _run_twice(case),
    }


def _was_held_at_its_kill(tenure: Tenure, lines: Sequence[Line]) -> bool:
    return tenure.killed_at < NEVER and all(line.at > tenure.killed_at for line in tenure.accepted)


def _run_twice(case: Case) -> int:
    """Jobs that ran again though no handler had asked for it."""
    return sum(
        sum(bool(one.started) and not one.may_have_returned for one in tenures) > 1
        for tenures in case.tenures.by_job.values()
    )


def _taken_meanwhile(case: Case) -> int:
    return sum(
        any(line.said == LOST for line in tenure.lines[ANSWERED])
        for tenures in case.tenures.by_job.values()
        for tenure in tenures[:-1]
    )


def shares(case: Case) -> dict[int, float]:
    """Of all claims, by process."""
    claims = Counter(line.process for line in case.lines if line.event == CLAIMED)
    return {process: count / claims.total() for process, count in claims.items()}


def recoveries(case: Case, starts: Sequence[Start]) -> list[dict[str, float]]:
    """For each restart the rate before, the best of the 15 s after, and when 95 % were reached."""
    times = [line.at for line in case.lines if line.event == ANSWERED and line.said == DELIVERED]
    return [_recovery(times, start) for start in starts]


def _recovery(times: Sequence[float], start: Start) -> dict[str, float]:
    before = _rate(times, start.stopped_at - BEFORE, start.stopped_at)
    ends = [start.started_at + STEP * step for step in range(1, int(AFTER / STEP) + 1)]
    rates = {
        end - start.started_at: _rate(times, max(end - WINDOW, start.started_at), end)
        for end in ends
        if end - start.started_at >= WINDOW
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
