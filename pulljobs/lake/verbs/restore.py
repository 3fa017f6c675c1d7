"""Bring a day back that was dropped, out of the lake; it is not exported again."""

from argparse import ArgumentParser
from datetime import date
from typing import Any

from pulljobs.conf import settings
from pulljobs.management.subcommands import CommandResult


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--day", type=date.fromisoformat, required=True, metavar="YYYY-MM-DD", help="of UTC"
    )


def handle(**options: Any) -> CommandResult:
    from pulljobs.lake.spark import restoring, tables

    found = restoring.restore(settings().DATABASE, tables.location(), options["day"])
    lines = [
        *(f"{table}: {rows:,} rows restored" for table, rows in found.rows.items()),
        *(f"{table}: left out. {why}" for table, why in found.left_out.items()),
    ]
    return CommandResult(found._asdict(), lines)
