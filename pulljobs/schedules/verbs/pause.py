"""Pause a schedule for a time, until a time, or until it is resumed."""

from argparse import ArgumentParser
from datetime import datetime, timedelta
from typing import Any

from pulljobs.conf import settings
from pulljobs.management import job_actions
from pulljobs.management.parsing import parse_duration, parse_time
from pulljobs.management.subcommands import CommandResult
from pulljobs.schedules import acting
from pulljobs.schedules.rules import format_slot
from pulljobs.storage import nodes


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the schedule")
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument(
        "--for", dest="length", type=parse_duration, metavar="TIME", help="length, such as 2h"
    )
    ends.add_argument("--until", type=parse_time, metavar="TIME", help="end, with a time zone")


def handle(
    *, name: str, length: timedelta | None, until: datetime | None, **options: Any
) -> CommandResult:
    if length is not None:
        until = nodes.clock(settings().DATABASE) + length
    row = acting.pause(name, until, by=job_actions.operator_name())
    end = "it is resumed" if row.paused_until is None else format_slot(row.paused_until)
    return CommandResult.from_facts({"schedule": name, "paused_until": end})
