"""The options of `python -m benchmarks day`."""

import argparse
from typing import Any, Final

LEAST_HOURS: Final = 8
"""In the second quarter of fewer, retention has not yet dropped anything."""


def add_to(commands: Any) -> None:
    """`commands`: what `add_subparsers` returned."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "day", help="what grows in 24 hours of jobs, with retention, in fast motion"
    )
    parser.set_defaults(module="benchmarks.day.session", settings="benchmarks.day.settings")
    parser.add_argument("--hours", type=_hours, default=24, help=f"{LEAST_HOURS} or more")
    parser.add_argument("--rate", type=float, default=500.0, help="jobs in a second of those hours")
    parser.add_argument("--processes", type=int, default=2, help="of the worker")
    parser.add_argument("--json", action="store_true", help="one line of JSON; tables go to stderr")


def _hours(text: str) -> int:
    hours = int(text)
    if hours < LEAST_HOURS:
        raise argparse.ArgumentTypeError(f"of fewer than {LEAST_HOURS} hours none are alike")
    return hours
