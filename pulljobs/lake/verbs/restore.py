"""Restore a day from the lake that PostgreSQL has dropped; it is not exported again."""

from argparse import ArgumentParser
from typing import Any

from pulljobs.conf import settings
from pulljobs.management.parsing import parse_day
from pulljobs.management.subcommands import CommandResult


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--day", type=parse_day, required=True, metavar="YYYY-MM-DD", help="day in UTC"
    )


def handle(**options: Any) -> CommandResult:
    from pulljobs.lake.spark import restoring, tables

    restored = restoring.restore(settings().DATABASE, tables.location(), options["day"])
    lines = [
        *(f"{table}: {rows:,} rows restored" for table, rows in restored.rows.items()),
        *(f"{table}: left out. {reason}" for table, reason in restored.left_out.items()),
    ]
    return CommandResult(restored._asdict(), lines)
