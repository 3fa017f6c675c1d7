"""Options of `python -m benchmarks faults`."""

import argparse
from pathlib import Path
from typing import Any, Final

from benchmarks.faults.plan import Plan

OVERLAPPING: Final = (
    "kill", "stop", "restart", "terminate", "readonly", "exhaust", "lock", "row", "clock", "cut",
    "rows", "stall", "lose",
)  # fmt: skip
"""Kinds of faults that happen in random order, and may overlap."""
IN_ROUNDS: Final = ("rows", "gone", "lose", "freeze", "hold", "raise", "stall")
"""Kinds of faults that happen one after the other, with `--rounds`."""


def add_to(commands: Any) -> None:
    """Add the command to the result of `add_subparsers`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "faults", help="inject faults under real processes and judge their histories"
    )
    parser.set_defaults(module="benchmarks.faults.command")
    parser.add_argument(
        "--faults", type=_names, metavar="A,B",
        help=f"kinds of faults, or none: {', '.join(OVERLAPPING)}; with --rounds"
        f" {', '.join(IN_ROUNDS)}; default: all",
    )  # fmt: skip
    parser.add_argument(
        "--rounds", type=int, help="number of faults of each kind, one after the other"
    )
    parser.add_argument("--minutes", type=float, help="how long faults are injected")
    parser.add_argument("--times", type=int, help="number of faults, spread over --jobs if given")
    parser.add_argument("--jobs", type=int, help="to publish; default: until the faults end")
    plan = Plan(faults=())
    parser.add_argument("--every", type=float, default=plan.every, help="seconds between faults")
    parser.add_argument("--hold", type=float, default=plan.hold, help="seconds that a fault lasts")
    parser.add_argument("--frozen", type=float, help="length of a stop in lease durations")
    parser.add_argument("--workers", type=int, default=plan.workers)
    parser.add_argument("--processes", type=int, default=plan.processes, help="of each worker")
    parser.add_argument("--concurrency", type=int, default=plan.concurrency)
    parser.add_argument("--claimers", type=int, default=plan.claimers, help="that lose leases")
    parser.add_argument("--clients", type=int, help="number of clients that pull over HTTP")
    parser.add_argument("--push", action="store_true", help="a push consumer has jobs, too")
    parser.add_argument("--seconds", type=float, default=plan.seconds, help="average time of a job")
    parser.add_argument("--keys", type=int, default=plan.keys, help="number; default: exclusive")
    parser.add_argument("--claim-rate", metavar="100/s", help="rate of each consumer")
    parser.add_argument("--window", action="store_true", help="the rate counts in fixed windows")
    parser.add_argument("--group", action="store_true", help="the consumers share the limits")
    parser.add_argument("--in-flight", type=int, metavar="N", help="jobs in flight at once")
    parser.add_argument("--slots", type=int, metavar="N", help="jobs of a key in flight at once")
    parser.add_argument("--fair", action="store_true", help="keys take turns")
    parser.add_argument("--by-key", action="store_true", help="the rate holds for each key")
    parser.add_argument("--costs", type=int, metavar="N", help="jobs cost 1 to N tokens")
    parser.add_argument("--throttle", type=float, help="seconds for which some jobs throttle it")
    parser.add_argument(
        "--change", type=float, metavar="SECONDS", help="between changes of the limits"
    )
    parser.add_argument(
        "--locked", type=float, default=plan.locked,
        help="seconds for which a round locks rows",
    )  # fmt: skip
    parser.add_argument(
        "--lease", dest="lease_duration", type=float, help="seconds; default: 2, and 3 in rounds"
    )
    parser.add_argument(
        "--older",
        type=Path,
        metavar="TREE",
        help="extracted older release: every other worker runs it",
    )
    parser.add_argument("--seed", type=int, help="of the random choices")
    parser.add_argument("--break", dest="broken", default="", metavar="A,B", help=argparse.SUPPRESS)
    parser.add_argument("--state", type=Path, help="directory in which the server stays")
    parser.add_argument("--keep", type=Path, help="new directory for histories and logs")
    parser.add_argument("--json", action="store_true", help="one line of JSON")


def make_plan(options: argparse.Namespace) -> Plan:
    """Return the plan. Raise SystemExit if nothing would end the run, or nothing would change."""
    given = {
        name: getattr(options, name)
        for name in Plan.__dataclass_fields__
        if getattr(options, name, None) is not None
    }
    given["faults"] = OVERLAPPING if options.faults is None else options.faults
    if options.times is None and options.minutes is None and options.jobs is None:
        raise SystemExit("Nothing would end the run: add --minutes, --times or --jobs.")
    if options.change and (options.window or not (options.claim_rate or options.slots)):
        raise SystemExit("--change changes --claim-rate, without --window, and --slots.")
    return Plan(**given)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name for name in text.split(",") if name and name != "none")
    known = dict.fromkeys((*OVERLAPPING, *IN_ROUNDS))
    if unknown := set(names) - set(known):
        raise argparse.ArgumentTypeError(
            f"no kind {', '.join(sorted(unknown))}: choose from {', '.join(known)}, or none"
        )
    return names


def check_kinds(options: argparse.Namespace) -> None:
    """Raise SystemExit if a chosen kind of fault does not exist with, or without, `--rounds`."""
    known = IN_ROUNDS if options.rounds else OVERLAPPING
    if unknown := set(options.faults or ()) - set(known):
        way = "with --rounds" if options.rounds else "without --rounds"
        raise SystemExit(
            f"No kind {', '.join(sorted(unknown))} {way}: choose from {', '.join(known)}."
        )
