"""Continue a lake after its database or files were moved, lost or restored from a backup."""

from typing import Any

from pulljobs.conf import settings
from pulljobs.management.subcommands import CommandResult


def handle(**options: Any) -> CommandResult:
    from pulljobs.lake.spark import rebasing, tables

    fresh = rebasing.rebase(settings().DATABASE, tables.location())
    lines = [
        f"{table}: {rows:,} rows were renumbered, and go to the lake with the next run"
        for table, rows in fresh.items()
    ]
    return CommandResult({"fresh": fresh}, lines)
