"""Make the rows that handlers name and the database lacks.

With --update also give those that are there the options that code names; the rest stays as people
have it.
"""

from argparse import ArgumentParser
from typing import Any

from pulljobs import handlers, subscribing
from pulljobs.management.blocks import Cell, Facts, Table, names
from pulljobs.management.inspecting.consumer import place_of
from pulljobs.management.subcommands import Answer
from pulljobs.subscribing import Updated


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--update", action="store_true", help="change rows whose options in code differ"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="tell what --update would change, and stop"
    )


def handle(*, update: bool, dry_run: bool, **options: Any) -> Answer:
    handlers.autodiscover()
    if not (update or dry_run):
        return Answer.of({"consumers": list(map(place_of, handlers.sync_consumers()))})
    return _answer(subscribing.update(dry_run=dry_run), dry_run=dry_run)


def _answer(found: list[Updated], *, dry_run: bool) -> Answer:
    consumers = [place_of(one.consumer) for one in found]
    changes = [
        {"consumer": place_of(one.consumer), "option": option, "was": was, "is": new}
        for one in found
        for option, (was, new) in one.changes.items()
    ]
    rows: list[list[Cell]] = [[str(value) for value in change.values()] for change in changes]
    columns = names("consumer", "option", "was", "would be" if dry_run else "is")
    return Answer(
        {"consumers": consumers, "dry_run": dry_run, "changes": changes},
        [
            Facts([("consumers", ", ".join(consumers) or "none")]),
            Table(columns, rows, "Every row is as code has it."),
        ],
    )
