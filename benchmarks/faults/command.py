"""Command `python -m benchmarks faults`, which runs a plan or rounds."""

import argparse

from benchmarks.faults import report, rounds
from benchmarks.faults.options import check_kinds


def run(options: argparse.Namespace) -> None:
    """Run a plan, or rounds if the options say so."""
    check_kinds(options)
    (rounds if options.rounds else report).run(options)
