"""Remove files of the lake that its newest version does not need, and shorten its log.

Readers of an older version may still need such files, so they stay for a week by default.
"""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any, Final

from pulljobs.conf import settings
from pulljobs.management.parsing import LONGEST, number_between
from pulljobs.management.subcommands import CommandResult

KEPT_HOURS: Final = 168.0


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--older-than", type=number_between("hours", 0, LONGEST.total_seconds() / 3600),
        default=KEPT_HOURS, metavar="HOURS",
        help="hours for which these files stay for readers (%(default)g)",
    )  # fmt: skip


def handle(**options: Any) -> CommandResult:
    from pulljobs.lake.spark import compacting, tables

    age = timedelta(hours=options["older_than"])
    vacuumed = compacting.vacuum(settings().DATABASE, tables.location(), age)
    lines = [f"{table.table}: {table.files:,} files were removed" for table in vacuumed]
    content = {table.table: table.files for table in vacuumed}
    return CommandResult(content, lines or ["There is no table yet."])
