"""The options of `python -m benchmarks faults`."""

import argparse
from pathlib import Path
from typing import Any, Final

from benchmarks.faults.plan import Plan

KINDS: Final = (
    "kill", "stop", "restart", "terminate", "readonly", "exhaust", "lock", "row", "clock", "cut"
)  # fmt: skip


def add_to(commands: Any) -> None:
    """`commands`: what `add_subparsers` returned."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "faults", help="break things under real processes and judge what they did"
    )
    parser.set_defaults(module="benchmarks.faults.verdict")
    parser.add_argument(
        "--faults", type=_names, default=KINDS, metavar="A,B",
        help=f"these only, or none: {', '.join(KINDS)}; all by default",
    )  # fmt: skip
    parser.add_argument("--minutes", type=float, help="how long things are broken")
    parser.add_argument("--times", type=int, help="how many faults; with --jobs, spread over them")
    parser.add_argument("--jobs", type=int, help="to publish; as long as things are broken without")
    plan = Plan(faults=())
    parser.add_argument("--every", type=float, default=plan.every, help="seconds between faults")
    parser.add_argument("--hold", type=float, default=plan.hold, help="seconds that one lasts")
    parser.add_argument("--frozen", type=float, help="leases that a stop lasts; 0.5 to 2.5 without")
    parser.add_argument("--workers", type=int, default=plan.workers)
    parser.add_argument("--concurrency", type=int, default=plan.concurrency)
    parser.add_argument("--claimers", type=int, default=plan.claimers, help="careless raw claimers")
    parser.add_argument("--seconds", type=float, default=plan.seconds, help="that a job takes")
    parser.add_argument("--keys", type=int, default=plan.keys, help="exclusive ones; 0: none")
    parser.add_argument("--lease", type=float, default=plan.lease_duration, help="seconds")
    parser.add_argument(
        "--older",
        type=Path,
        metavar="TREE",
        help="of an older release, as `git archive` has it: every other worker is of it",
    )
    parser.add_argument("--seed", type=int, help="of what is broken when")
    parser.add_argument("--break", dest="broken", default="", metavar="A,B", help=argparse.SUPPRESS)
    parser.add_argument("--state", type=Path, help="keep the server there for the next run")
    parser.add_argument("--keep", type=Path, help="a new directory for histories and logs")
    parser.add_argument("--json", action="store_true", help="one line of JSON")


def plan_of(options: argparse.Namespace) -> Plan:
    given = {name: getattr(options, name) for name in Plan.__dataclass_fields__}
    if options.times is None and options.minutes is None and options.jobs is None:
        raise SystemExit("When is it over? Say --minutes, --times or --jobs.")
    return Plan(**given)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name for name in text.split(",") if name and name != "none")
    if unknown := set(names) - set(KINDS):
        raise argparse.ArgumentTypeError(
            f"{', '.join(sorted(unknown))}: choose of {', '.join(KINDS)}, or none"
        )
    return names
