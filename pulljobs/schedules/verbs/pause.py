"""Pause a schedule until a time, or until it is resumed."""

from argparse import ArgumentParser
from datetime import datetime
from typing import Any

from pulljobs.management import job_actions
from pulljobs.management.parsing import parse_time
from pulljobs.management.subcommands import CommandResult
from pulljobs.schedules import acting
from pulljobs.schedules.rules import format_slot


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the schedule")
    parser.add_argument("--until", type=parse_time, metavar="TIME", help="end of the pause")


def handle(*, name: str, until: datetime | None, **options: Any) -> CommandResult:
    row = acting.pause(name, until, by=job_actions.operator_name())
    end = "it is resumed" if row.paused_until is None else format_slot(row.paused_until)
    return CommandResult.from_facts({"schedule": name, "paused_until": end})
