"""Report of a worker process, for its node row in the database and, on SIGUSR1, for its log."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

from pulljobs.handlers import ClaimedJob
from pulljobs.loops import Runner
from pulljobs.worker.runs import NO_SLOT, HandlerRun

Report = dict[str, Any]


def build_report(
    runners: Sequence[Runner],
    running: Sequence[HandlerRun],
    circuits: Mapping[str, Any],
    serves: Sequence[str],
    added: Mapping[str, Any],
    **counts: int,
) -> Report:
    """Return the state of a process for JSON, with times in seconds and ids as text.

    `added` has the parts of the report that other apps add, and `counts` further numbers, by name.
    """
    return {
        **added,
        "loops": {runner.name: runner.report() for runner in runners},
        "running": [_run(run) for run in running],
        "circuits": dict(circuits),
        "serves": list(serves),
        **counts,
    }


def _run(run: HandlerRun) -> Report:
    handler = run.job.handler
    return {
        "job": str(run.job.id),
        "consumer": handler.path,
        "slot": None if run.slot == NO_SLOT else run.slot,
        "seconds": round(run.seconds, 1),
        "ended": run.cancel_reason,
    }


def format_report(
    report: Report,
    running: Sequence[HandlerRun],
    find_frame: Callable[[ClaimedJob], FrameType | None],
) -> Iterator[str]:
    """Yield a line for each loop, running job and circuit, and one with all counts.

    The line of a job has the place in its code, if it is known. `find_frame` returns the frame at
    which an async handler waits.
    """
    for name, loop in report["loops"].items():
        state = "dead" if not loop["alive"] else "asleep"
        if loop["in_pass_seconds"] is not None:
            state = f"in a pass for {loop['in_pass_seconds']} s"
        yield f"{name}: {state}, last pass {loop['last_pass_seconds']} s ago"
    frames = sys._current_frames()
    for run, row in zip(running, report["running"], strict=True):
        frame = find_frame(run.job) or frames.get(run.thread)
        place = f", at {frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""
        job = f"job {row['job']} of {row['consumer']}"
        slot = "push delivery" if row["slot"] is None else f"slot {row['slot']}"
        yield f"{slot}: {job} for {row['seconds']} s{place}"
    for consumer, circuit in report["circuits"].items():
        yield f"circuit of {consumer}: {circuit['state']}, level {circuit['level']}"
    counts = {name: count for name, count in report.items() if isinstance(count, int)}
    yield ", ".join(f"{name} {count}" for name, count in counts.items())
