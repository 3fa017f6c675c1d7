"""How consumers and nodes stand at the moment, and what of it the database did not tell."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final

from pulljobs.admin.dashboard.reading import Part
from pulljobs.errors import PulljobsError
from pulljobs.management.output_blocks import Block
from pulljobs.management.subcommands import EXIT_OK, EXIT_PROBLEM, CommandResult
from pulljobs.management.top import frame, tables
from pulljobs.management.top.frame import Among, TopFrame

OF_CONSUMERS: Final = (Part.CONSUMERS, Part.WORKERS, Part.THROUGHPUT)
OF_NODES: Final = (Part.WORKERS,)
NOT_KNOWN: Final = "not known"


def read(parts: Collection[Part], among: Among | None = None) -> TopFrame:
    """Tells of these parts alone; PulljobsError where the database can't be asked for them."""
    now = frame.read(among)
    refused = {part: reason for part, reason in now.refused.items() if part in parts}
    now = replace(now, missed=[part for part in now.missed if part in parts], refused=refused)
    if now.error:
        raise PulljobsError(f"The database fails: {now.error}")
    return now


def answer(now: TopFrame, content: dict[str, Any], lines: Sequence[Block]) -> CommandResult:
    """Who knows only a part of it must be able to tell."""
    told = {**content, "missed": [part.value for part in now.missed]}
    return CommandResult(
        told, [*lines, *tables.missed(now)], EXIT_PROBLEM if now.missed else EXIT_OK
    )
