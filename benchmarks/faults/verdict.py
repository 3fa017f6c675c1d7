"""What `python -m benchmarks faults` says of a run."""

import argparse
import json
import sys
from collections import Counter
from typing import Any, Final

from benchmarks.faults import director
from benchmarks.faults.checker import faults
from benchmarks.faults.director import Outcome
from benchmarks.faults.figures import AFTER, counts, recoveries
from benchmarks.faults.options import plan_of
from benchmarks.faults.plan import Plan

SHOWN: Final = 5
RECOVERED: Final = 0.95


def run(options: argparse.Namespace) -> None:
    """Exit code 1 for what must not be."""
    plan = plan_of(options)
    outcome = director.run(plan, options.state, options.keep)
    told = verdict(plan, outcome)
    print(json.dumps(told) if options.json else _text(told))
    sys.exit(0 if told["clean"] else 1)


def verdict(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    broken = faults(outcome.case)
    after = recoveries(outcome.case, outcome.stage.starts)
    is_measured = plan.faults == ("restart",) and plan.every > AFTER
    if is_measured and any(one["ratio"] < RECOVERED for one in after):
        outcome.complaints.append("the rate of before was not reached again in 15 s")
    figures = counts(outcome.case)
    if not (figures["acknowledged"] and figures["claims"]):
        outcome.complaints.append("nothing was done: --keep the logs, and see why processes ended")
    return {
        "clean": not broken and not outcome.complaints,
        "broken": {rule: [len(said), *said[:SHOWN]] for rule, said in broken.items()},
        "complaints": outcome.complaints,
        "faults": Counter(outcome.injected),
        "kills": outcome.stage.kills,
        **figures,
        "restarts": after,
    }


def _text(told: dict[str, Any]) -> str:
    lines = [f"{name}: {value}" for name, value in told.items() if name not in WORDED]
    lines += [f"restart: {one}" for one in told["restarts"]]
    lines += [f"complaint: {one}" for one in told["complaints"]]
    for rule, (count, *examples) in told["broken"].items():
        lines += [f"BROKEN {rule}, {count} times:", *(f"  {one}" for one in examples)]
    return "\n".join([*lines, "clean" if told["clean"] else "NOT CLEAN"])


WORDED: Final = ("clean", "broken", "complaints", "restarts")
