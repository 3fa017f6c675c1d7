"""Show a batch: its counts, its progress, the batches in it, and its dead members with errors."""

from argparse import ArgumentParser
from typing import Any

from pulljobs.management.inspection.shared import format_value
from pulljobs.management.output_blocks import FactsBlock, TableBlock, text_columns, title
from pulljobs.management.subcommands import CommandResult
from pulljobs.workflows.batches import reading, rendering


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("batch", metavar="BATCH", help="id of the batch")


def handle(*, batch: str, **options: Any) -> CommandResult:
    view = reading.get(batch)
    summary = rendering.summarize(view)
    dead = [rendering.describe_dead(member) for member in view.dead_members()]
    nested = [rendering.summarize(each) for each in view.nested(reading.SHOWN + 1)]
    is_more, nested = len(nested) > reading.SHOWN, nested[: reading.SHOWN]
    shown = {**summary, "progress": f"{view.progress:.1f} %"}
    facts = [
        (key.replace("_", " "), format_value(value))
        for key, value in shown.items()
        if value is not None
    ]
    return CommandResult(
        {**summary, "dead_members": dead, "nested": nested, "is_more_nested": is_more},
        [
            FactsBlock(facts),
            title("Batches in it, the oldest"),
            TableBlock(
                text_columns("batch", "name", "state"),
                [[each["id"], each["name"], each["state"]] for each in nested],
                "No batch is in it.",
            ),
            *([f"There are more: these are the oldest {reading.SHOWN:,}."] if is_more else []),
            title("Dead members"),
            TableBlock(
                text_columns("job", "consumer", "reason", "error"),
                [
                    [each["job_id"], f"{each['channel']}/{each['consumer']}", each["reason"],
                     (each["error"] or "").partition("\n")[0]]
                    for each in dead
                ],
                "No member is dead.",
            ),
        ],
    )  # fmt: skip
