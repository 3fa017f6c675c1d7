"""End the pause of a schedule. Its policy `missed` decides which slots of the pause fire."""

from argparse import ArgumentParser
from typing import Any

from pulljobs.management import job_actions
from pulljobs.management.subcommands import CommandResult
from pulljobs.schedules import acting
from pulljobs.schedules.rules import format_slot


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the schedule")


def handle(*, name: str, **options: Any) -> CommandResult:
    row = acting.resume(name, by=job_actions.operator_name())
    next_slot = None if row.next_slot is None else format_slot(row.next_slot)
    return CommandResult.from_facts({"schedule": name, "next_slot": next_slot})
