"""Delete dead jobs. Their history stays in the archive.

    delete d3k2v1g0000a1b2c3d4g
    delete --only orders/invoicing --reason rejected --older-than 30d

The command shows how many jobs are meant and asks before it acts, in batches. It records the user
in the audit trail. If it is interrupted, `operate` or a worker continues it.
"""

from argparse import ArgumentParser
from typing import Any

from pulljobs.management import job_actions
from pulljobs.management.subcommands import CommandResult
from pulljobs.states import Event


def add_arguments(parser: ArgumentParser) -> None:
    job_actions.add_arguments(parser, Event.DELETE)


def handle(**options: Any) -> CommandResult:
    return job_actions.run(Event.DELETE, options)
