"""Export settlements and messages since the last run to the lake, exactly once.

This process writes few rows itself. It starts Spark for more rows, or if a master is chosen.
"""

import signal
import threading
from argparse import ArgumentParser
from contextlib import ExitStack
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import psycopg
from django.db import Error, connections

from pulljobs.conf import settings
from pulljobs.engine.telemetry import LoopFailed, emit
from pulljobs.errors import ConfigurationError, LakeError
from pulljobs.lake import ledger
from pulljobs.lake.telemetry import ExportHeldBack
from pulljobs.management.parsing import number_between, parse_size
from pulljobs.management.subcommands import CommandResult

if TYPE_CHECKING:
    from pulljobs.lake.spark.export_run import Sessions
    from pulljobs.lake.spark.exporting import Exported, ExportOptions

PAYLOAD_CAP: Final = 2**20
LEAST: Final = 0.1
LONGEST: Final = 30 * 86_400


def add_arguments(parser: ArgumentParser) -> None:
    add_payload_arguments(parser)
    parser.add_argument(
        "--reader", choices=["adbc", "copy"], default="adbc",
        help="how rows are read from PostgreSQL (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--watch", type=number_between("seconds", LEAST, LONGEST), metavar="SECONDS",
        help="keep running, with this pause between two runs",
    )  # fmt: skip
    parser.add_argument(
        "--max-lag", type=number_between("seconds", 0, LONGEST), metavar="SECONDS", default=300,
        help="age at which an open transaction that holds the export back is reported (300)",
    )  # fmt: skip


def add_payload_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--with-payload", action="store_true", help="export the payloads of messages, too"
    )
    parser.add_argument(
        "--payload-cap", type=parse_size, metavar="BYTES",
        help="size above which a payload is not exported (1M)",
    )  # fmt: skip
    parser.add_argument(
        "--channel", action="append", default=[], metavar="NAME",
        help="channel whose payloads to export, may be repeated (all)",
    )  # fmt: skip


def choose_options(options: dict[str, Any]) -> "ExportOptions":
    """Return the options of the export that these command-line options choose.

    Raise ConfigurationError if they limit payloads without `--with-payload`.
    """
    from pulljobs.lake.spark.exporting import ExportOptions

    cap = options["payload_cap"]
    if not options["with_payload"] and (options["channel"] or cap is not None):
        raise ConfigurationError(
            "--channel and --payload-cap choose among payloads, and none are exported: "
            "add --with-payload."
        )
    if options["with_payload"] and cap is None:
        cap = PAYLOAD_CAP
    return ExportOptions(
        payload_cap=cap,
        channels=tuple(options["channel"]),
        reader=options.get("reader", "adbc"),
    )


def handle(**options: Any) -> CommandResult:
    from pulljobs.lake.spark import session

    with ExitStack() as stack:
        opened = partial(
            session.open_session, "export", master=options["master"], conf=options["conf"]
        )
        if options["watch"] is None:
            return _answer(_once(options, opened))
        return _answer(_watched(options, session.keep_session(opened, stack)))


def _watched(options: dict[str, Any], sessions: "Sessions") -> "Exported":
    """Export again and again until SIGTERM or SIGINT, and return the sum of all results.

    The run that is under way at the signal still ends.
    """
    from pulljobs.lake.spark.exporting import Exported

    stopped, total = threading.Event(), Exported()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    while not stopped.is_set():
        try:
            total.merge(_once(options, sessions))
        except (LakeError, Error, psycopg.Error) as error:
            connections.close_all()
            emit(LoopFailed("lake export", str(error), options["watch"]))
        stopped.wait(options["watch"])
    return total


def _once(options: dict[str, Any], sessions: "Sessions") -> "Exported":
    from pulljobs.lake.spark import exporting, session

    has_master = session.has_master(options["master"])
    exported = exporting.export(choose_options(options), sessions, always_spark=has_master)
    _alert(timedelta(seconds=options["max_lag"]), exported)
    return exported


def _alert(limit: timedelta, exported: "Exported") -> None:
    blocker = ledger.find_blocker(settings().DATABASE)
    if blocker and blocker.age is not None and blocker.age >= limit:
        exported.held_back_by = blocker.holder
        emit(ExportHeldBack(blocker.holder, blocker.age.total_seconds()))


def _answer(exported: "Exported") -> CommandResult:
    rows = ", ".join(f"{count:,} of {table}" for table, count in exported.rows.items())
    lines = [f"exported: {rows}; {exported.bytes:,} bytes in {exported.seconds:.1f} s"]
    if exported.resumed:
        lines.append("An interrupted run was completed first.")
    if exported.held_back_by:
        lines.append(f"Held back by {exported.held_back_by}: see `pulljobs doctor`.")
    return CommandResult(asdict(exported), lines)
