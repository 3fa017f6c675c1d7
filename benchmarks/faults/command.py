"""Command `python -m benchmarks faults`, with overlapping faults or with one at a time."""

import argparse

from benchmarks.faults import report, rounds
from benchmarks.faults.options import check_kinds


def run(options: argparse.Namespace) -> None:
    """Run a plan of overlapping faults, or with `--rounds` inject the faults one at a time."""
    check_kinds(options)
    (rounds if options.rounds else report).run(options)
