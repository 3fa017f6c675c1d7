"""Publish the message of a schedule now, whatever its rule."""

from argparse import ArgumentParser
from typing import Any

from pulljobs.management import job_actions
from pulljobs.management.subcommands import CommandResult
from pulljobs.schedules import acting, reading


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the schedule")


def handle(*, name: str, **options: Any) -> CommandResult:
    slot = acting.fire_now(name, by=job_actions.operator_name())
    return CommandResult.from_facts(reading.describe_slot(slot))
