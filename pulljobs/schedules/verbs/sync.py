"""Create the rows of schedules that code declares.

With --update, existing rows get the options of their declarations as well.
"""

from argparse import ArgumentParser
from typing import Any

from pulljobs import handlers
from pulljobs.management import job_actions
from pulljobs.management.output_blocks import Cell, FactsBlock, TableBlock, text_columns
from pulljobs.management.subcommands import CommandResult
from pulljobs.schedules import declaring


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--update", action="store_true", help="update rows whose options differ from the code"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what --update would change, and change nothing"
    )


def handle(*, update: bool, dry_run: bool, **options: Any) -> CommandResult:
    handlers.autodiscover()
    updates = declaring.sync(update=update, dry_run=dry_run, by=job_actions.operator_name())
    created = [each.name for each in updates if each.is_created]
    changes = [
        _describe(each.name, option, *values)
        for each in updates
        for option, values in each.changes.items()
    ]
    gone = declaring.undeclared()
    rows: list[list[Cell]] = [list(change.values()) for change in changes]
    return CommandResult(
        {"created": created, "dry_run": dry_run, "changes": changes, "undeclared": gone},
        [
            FactsBlock(
                [
                    ("created", ", ".join(created) or "none"),
                    ("no longer declared", ", ".join(gone) or "none"),
                ]
            ),
            TableBlock(
                text_columns("schedule", "option", "was", "would be" if dry_run else "is"),
                rows,
                "No row was changed.",
            ),
        ],
    )


def _describe(schedule: str, option: str, was: object, new: object) -> dict[str, str]:
    """Return the old and new value of an option as text, or "not shown" for payloads."""
    if option == "payload":
        was = new = "not shown"
    return {"schedule": schedule, "option": option, "was": str(was), "is": str(new)}
