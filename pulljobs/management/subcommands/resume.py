"""End the pauses of channels or consumers.

    resume orders/invoicing --yes

A consumer stays paused while its channel is. The command records the user in the audit trail.
"""

from argparse import ArgumentParser
from typing import Any

from pulljobs.management import job_actions
from pulljobs.management.subcommands import CommandResult, pause


def add_arguments(parser: ArgumentParser) -> None:
    pause.add_names(parser)
    job_actions.add_confirmation(parser, "resume")


def handle(*, names: list[str], **options: Any) -> CommandResult:
    return pause.set_pause("resume", "resumed", names, None, "", options)
