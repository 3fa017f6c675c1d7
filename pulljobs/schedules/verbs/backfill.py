"""Publish the message of a schedule for each past slot of a window that did not fire."""

from argparse import ArgumentParser
from datetime import datetime
from typing import Any

from pulljobs.management import job_actions
from pulljobs.management.parsing import parse_time
from pulljobs.management.subcommands import CommandResult
from pulljobs.schedules import acting, reading


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the schedule")
    parser.add_argument("start", type=parse_time, metavar="FROM", help="begin of the window")
    parser.add_argument("end", type=parse_time, metavar="TO", help="end of the window, exclusive")


def handle(*, name: str, start: datetime, end: datetime, **options: Any) -> CommandResult:
    slots = acting.backfill(name, start, end, by=job_actions.operator_name())
    described = [reading.describe_slot(slot) for slot in slots]
    return CommandResult(
        {"schedule": name, "fired": len(slots), "slots": described},
        [f"Slots of {name} that were fired: {len(slots):,}."],
    )
