"""Rounds of faults that must delay nothing else: `python -m benchmarks faults --rounds 10`.

Each kind has a plan of its own and runs on processes of its own. Its faults come one after the
other, while a few jobs a second are published that leave threads idle.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from benchmarks.faults.checker import Case
from benchmarks.faults.director import RunResult, run_on
from benchmarks.faults.plan import Plan
from benchmarks.faults.report import broken_lines, make_report
from benchmarks.faults.server import own_server

USUAL: Final = Plan(
    faults=(),
    rounds=1,
    workers=2,
    claimers=0,
    concurrency=8,
    seconds=0.1,
    rate=20.0,
    lease_duration=3.0,
    every=3.0,
)
LARGEST_PAYLOAD: Final = 1 << 20
PLANS: Final[Mapping[str, Plan]] = {
    "rows": replace(USUAL, faults=("rows",), claimers=1, clients=1),
    "gone": replace(USUAL, faults=("gone",), clients=2),
    "lose": replace(USUAL, faults=("lose",)),
    "freeze": replace(USUAL, faults=("freeze",), clients=2),
    "hold": replace(USUAL, faults=("hold",)),
    "raise": replace(USUAL, faults=("raise",), clients=2),
    "stall": replace(USUAL, faults=("stall",), clients=1, rate=10.0, largest=LARGEST_PAYLOAD),
}
"""Plan for each kind of fault."""
COLUMNS: Final = ("kind", "rounds", "seconds", "jobs", "longest wait", "verdict")


def run(options: argparse.Namespace) -> None:
    """Inject the faults of each kind in turn, print a table, and exit with 1 for a broken rule."""
    kinds = [kind for kind in PLANS if options.faults is None or kind in options.faults]
    if options.keep is not None:
        options.keep.mkdir()
    with own_server(options.state) as own:
        reports = []
        for kind in kinds:
            began = time.monotonic()
            plan = _plan(kind, options)
            result = run_on(own, plan, options.keep and options.keep / kind)
            reports.append(_report(kind, plan, result, time.monotonic() - began))
            print(_row(reports[-1]), file=sys.stderr, flush=True)
            own.prepare()
    print(json.dumps(reports) if options.json else "\n".join(_table(reports)))
    sys.exit(0 if all(report["clean"] for report in reports) else 1)


def _plan(kind: str, options: argparse.Namespace) -> Plan:
    plan = replace(PLANS[kind], rounds=options.rounds, locked=options.locked, seed=options.seed)
    lease_duration = options.lease_duration or plan.lease_duration
    return replace(plan, broken=options.broken, lease_duration=lease_duration)


def _report(kind: str, plan: Plan, result: RunResult, seconds: float) -> dict[str, Any]:
    report = make_report(plan, result)
    return {
        "kind": kind,
        "rounds": plan.rounds,
        "seconds": round(seconds),
        "jobs": report["acknowledged"],
        "longest wait": round(_longest_wait(result.case, plan.lease_duration), 1),
        "verdict": "clean" if report["clean"] else "NOT CLEAN",
        **report,
    }


def _longest_wait(case: Case, lease_duration: float) -> float:
    """Return the longest unexplained wait of a job in seconds.

    The leases of claims whose answers were lost are subtracted from each wait.
    """
    waits = (wait.seconds - lease_duration * wait.lost_claims for wait in case.waits)
    return max(waits, default=0.0)


def _table(reports: list[dict[str, Any]]) -> Iterator[str]:
    yield _row(dict(zip(COLUMNS, COLUMNS, strict=True)))
    for report in reports:
        yield _row(report)
    for report in reports:
        yield from (f"{report['kind']}: {line}" for line in broken_lines(report))
    is_clean = all(report["clean"] for report in reports)
    yield "clean" if is_clean else "NOT CLEAN"


def _row(report: Mapping[str, Any]) -> str:
    return "".join(f"{report[column]!s:<14}" for column in COLUMNS).rstrip()
