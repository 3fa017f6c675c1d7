"""Join the small files of the lake into large ones, day by day.

Many exports of few rows leave many small files, which make every reader slow. The rows of a day
that is over are sorted by id, that is by time. `lake vacuum` removes the small files later.
"""

from typing import Any

from pulljobs.conf import settings
from pulljobs.management.subcommands import CommandResult


def handle(**options: Any) -> CommandResult:
    from pulljobs.lake.spark import compacting, tables

    compacted = compacting.compact(settings().DATABASE, tables.location())
    lines = [
        f"{table.table}: {table.files_before:,} files became {table.files_after:,}, "
        f"{table.days:,} days were compacted"
        for table in compacted
    ]
    content = {table.table: table._asdict() for table in compacted}
    return CommandResult(content, lines or ["There is no table yet."])
