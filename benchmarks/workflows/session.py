"""Run of `python -m benchmarks workflows`: each library in turn, and the table."""

import argparse
import sys
from subprocess import TimeoutExpired
from typing import Final

import psycopg

from benchmarks.database import refuse_unsafe
from benchmarks.peers.environments import NotRun, prepare
from benchmarks.report import Table, print_report
from benchmarks.workflows.catalog import WorkflowPeer, choose_peers
from benchmarks.workflows.measures import Measured, Row

FAILURES: Final = (NotRun, TimeoutError, TimeoutExpired, psycopg.Error)


def run(options: argparse.Namespace) -> None:
    """Measure the libraries and print their figures, and the reason of each that cannot run."""
    refuse_unsafe()
    rows = [_measure(peer, options) for peer in choose_peers(options.peers)]
    tables = {"Workflows": _align(rows)}
    figures = {f"{row['peer']} steps/s": row["steps/s"] for row in rows if "steps/s" in row}
    print_report(tables, figures, as_json=options.json)


def _measure(peer: WorkflowPeer, options: argparse.Namespace) -> Row:
    """Return the figures of a library, or only those measured before it failed."""
    row: Row = {"peer": peer.name}
    try:
        Measured(peer, prepare(peer), row).measure(options)
    except FAILURES as error:
        row["not run"] = str(error)
    print(row, file=sys.stderr, flush=True)
    return row


def _align(rows: list[Row]) -> Table:
    """Return the rows with the columns of all of them, empty where a row has none."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name, "") for name in columns} for row in rows]
