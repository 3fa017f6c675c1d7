"""Show a schedule: its rule in words, its state, its next slots and its history."""

from argparse import ArgumentParser
from typing import Any, Final

from pulljobs.conf import settings
from pulljobs.management.output_blocks import FactsBlock, TableBlock, text_columns, title
from pulljobs.management.subcommands import CommandResult
from pulljobs.schedules import reading
from pulljobs.storage import nodes

SHOWN: Final = 10
"""Number of records that the history shows."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the schedule")


def handle(*, name: str, **options: Any) -> CommandResult:
    using = settings().DATABASE
    row = reading.find(name)
    summary = reading.summarize(row, nodes.clock(using))
    history = [reading.describe_slot(slot) for slot in reading.history(row, SHOWN)]
    upcoming = [slot._asdict() for slot in reading.upcoming(row)]
    facts = [(key.replace("_", " "), str(value)) for key, value in summary.items() if value]
    return CommandResult(
        {**summary, "upcoming": upcoming, "history": history},
        [
            FactsBlock(facts),
            title("Next slots"),
            reading_table(upcoming),
            title("History"),
            TableBlock(
                text_columns("slot", "late", "message", "reason"),
                [
                    [each["slot"], f"{each['late_seconds']:.3f} s", each["message"] or "none",
                     each["error"] or each["reason"]]
                    for each in history
                ],
                "No slot has a record.",
            ),
        ],
    )  # fmt: skip


def reading_table(upcoming: list[dict[str, Any]]) -> TableBlock:
    """Return the table of upcoming slots, given as dicts with the fields of UpcomingSlot."""
    return TableBlock(
        text_columns("UTC", "in its zone", ""),
        [[slot["utc"], slot["local"], slot["change"]] for slot in upcoming],
        "No slot will follow.",
    )
