"""Name what keeps jobs from being done, or soon will; the exit code is 1 if something does."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from pulljobs.diagnosis.doctor import examine
from pulljobs.management.subcommands import Answer


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--snapshot-age",
        type=float,
        default=60,
        metavar="SECONDS",
        help="how old a transaction may be (60)",
    )


def handle(**options: Any) -> Answer:
    found = examine(timedelta(seconds=options["snapshot_age"]))
    lines = [f"{'BLOCKED' if one.is_error else 'note'} {one.code}: {one.text}" for one in found]
    return Answer(
        {"findings": [one._asdict() for one in found]},
        lines or ["Nothing blocks."],
        exit_code=int(any(one.is_error for one in found)),
    )
