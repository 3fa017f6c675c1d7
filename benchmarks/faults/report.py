"""Report of `python -m benchmarks faults`."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from benchmarks.faults import director
from benchmarks.faults.checker import find_faults
from benchmarks.faults.director import RunResult
from benchmarks.faults.figures import AFTER, count_events, recoveries
from benchmarks.faults.options import make_plan
from benchmarks.faults.plan import Plan

EXAMPLES: Final = 5
RECOVERED: Final = 0.95


def run(options: argparse.Namespace) -> None:
    """Run the plan, print the report, and exit with 1 if it has broken rules or complaints."""
    plan = make_plan(options)
    result = director.run(plan, options.state, options.keep)
    report = make_report(plan, result)
    print(json.dumps(report) if options.json else _text(report))
    sys.exit(0 if report["clean"] else 1)


def make_report(plan: Plan, result: RunResult) -> dict[str, Any]:
    """Return the verdict, the broken rules, complaints and figures of a run."""
    broken = find_faults(result.case)
    after = recoveries(result.case, result.targets.restarts)
    is_measured = plan.faults == ("restart",) and plan.every > AFTER
    if is_measured and any(recovery["ratio"] < RECOVERED for recovery in after):
        result.complaints.append("the rate before the restart was not reached again in 15 s")
    figures = count_events(result.case)
    if not (figures["acknowledged"] and figures["claims"]):
        result.complaints.append("nothing was claimed: read the logs that --keep leaves")
    return {
        "clean": not broken and not result.complaints,
        "broken": {
            rule: [len(sentences), *sentences[:EXAMPLES]] for rule, sentences in broken.items()
        },
        "complaints": result.complaints,
        "faults": Counter(result.injected),
        "kills": result.targets.kills,
        **figures,
        "restarts": after,
    }


def _text(report: dict[str, Any]) -> str:
    lines = [f"{name}: {value}" for name, value in report.items() if name not in SHOWN_LAST]
    lines += [f"restart: {line}" for line in report["restarts"]]
    lines += broken_lines(report)
    return "\n".join([*lines, "clean" if report["clean"] else "NOT CLEAN"])


def broken_lines(report: Mapping[str, Any]) -> list[str]:
    """Return the complaints and the broken rules with examples."""
    lines = [f"complaint: {line}" for line in report["complaints"]]
    for rule, (count, *examples) in report["broken"].items():
        lines += [f"BROKEN {rule}, {count} times:", *(f"  {line}" for line in examples)]
    return lines


SHOWN_LAST: Final = ("clean", "broken", "complaints", "restarts")
