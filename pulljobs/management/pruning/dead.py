"""Delete all DEAD jobs or a selection; their history stays in the archive."""

from argparse import ArgumentParser
from typing import Any

from pulljobs.management import job_actions, job_filters
from pulljobs.management.subcommands import CommandResult
from pulljobs.states import Event


def add_arguments(parser: ArgumentParser) -> None:
    job_filters.add_filters(parser, has_reason=True)
    job_actions.add_confirmation(parser, "delete")


def handle(**options: Any) -> CommandResult:
    return job_actions.run(Event.DELETE, options)
