"""Kill the queued members of a batch, which takes no members any more.

Members in flight go on, and the batch completes when they have ended.
"""

from argparse import ArgumentParser
from typing import Any

from pulljobs.management import job_actions
from pulljobs.management.subcommands import CommandResult
from pulljobs.workflows.batches import auditing, confirming, reading


def add_arguments(parser: ArgumentParser) -> None:
    confirming.add_arguments(parser, "cancel")


def handle(**options: Any) -> CommandResult:
    view = reading.get(options["batch"])
    text = confirming.describe(view, "live", view.live)
    return confirming.run(
        "cancel",
        view,
        text,
        options,
        lambda: auditing.cancel(view.id, by=job_actions.operator_name()),
    )
