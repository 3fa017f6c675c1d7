"""Queue the dead members of a batch again.

If the batch was complete, another round begins, whose end publishes the callbacks again.
"""

from argparse import ArgumentParser
from typing import Any

from pulljobs.management import job_actions
from pulljobs.management.subcommands import CommandResult
from pulljobs.workflows.batches import auditing, confirming, reading


def add_arguments(parser: ArgumentParser) -> None:
    confirming.add_arguments(parser, "redrive")


def handle(**options: Any) -> CommandResult:
    view = reading.get(options["batch"])
    text = confirming.describe(view, "dead", view.dead)
    return confirming.run(
        "redrive",
        view,
        text,
        options,
        lambda: auditing.redrive(view.id, by=job_actions.operator_name()),
    )
