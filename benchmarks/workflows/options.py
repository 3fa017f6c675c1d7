"""Options of `python -m benchmarks workflows` and `workflow-faults`."""

import argparse
from pathlib import Path
from typing import Any


def add_to(commands: Any) -> None:
    """Add both commands to the result of `add_subparsers`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "workflows", help="steps, signals, sleeping runs and batches, next to other libraries"
    )
    parser.set_defaults(module="benchmarks.workflows.session")
    parser.add_argument("--peers", type=_names, metavar="A,B", help="names of peers; default: all")
    parser.add_argument("--runs", type=int, default=2_000, help="runs of ten steps")
    parser.add_argument("--processes", type=int, default=4, help="that work on them")
    parser.add_argument("--signals", type=int, default=200, help="runs to resume, one by one")
    parser.add_argument("--sleeping", type=int, default=1_000_000, help="runs that sleep")
    parser.add_argument("--members", type=int, default=1_000_000, help="members of the batch")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    _add_faults(commands)


def _add_faults(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "workflow-faults", help="runs and batches whose processes break between two statements"
    )
    parser.set_defaults(module="benchmarks.workflows.faults")
    parser.add_argument("--times", type=int, default=1_000, help="faults to inject")
    parser.add_argument("--workers", type=int, default=2, help="with a supervisor each")
    parser.add_argument("--processes", type=int, default=2, help="of each worker")
    parser.add_argument("--live", type=int, default=40, help="runs to keep alive")
    parser.add_argument(
        "--lease", type=float, default=2.0, dest="lease_duration", help="lease duration in seconds"
    )
    parser.add_argument(
        "--break", default="", dest="broken", metavar="NAMES", help="break pulljobs on purpose"
    )
    parser.add_argument("--seed", type=int, help="of the faults")
    parser.add_argument("--state", type=Path, help="directory in which the server stays")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]
