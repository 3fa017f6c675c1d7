"""Take running jobs from their holders and queue them again, uncharged.

    requeue d3k2v1g0000a1b2c3d4g
    requeue --only orders/invoicing --older-than 1h

A handler that runs such a job is not ended, but its outcome is discarded.

The command shows how many jobs are meant and asks before it acts, in batches. It records the user
in the audit trail. If it is interrupted, `operate` or a worker continues it.
"""

from argparse import ArgumentParser
from typing import Any

from pulljobs.management import job_actions
from pulljobs.management.subcommands import CommandResult
from pulljobs.states import Event


def add_arguments(parser: ArgumentParser) -> None:
    job_actions.add_arguments(parser, Event.RELEASE)


def handle(**options: Any) -> CommandResult:
    return job_actions.run(Event.RELEASE, options)
