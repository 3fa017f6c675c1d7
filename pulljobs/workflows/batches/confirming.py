"""Preview and confirmation of commands that act on a batch."""

from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any, Final

from pulljobs.management import job_actions
from pulljobs.management.subcommands import CommandResult
from pulljobs.workflows.batches import rendering
from pulljobs.workflows.batches.reading import BatchView

DONE: Final = {"cancel": "killed", "redrive": "redriven"}


def add_arguments(parser: ArgumentParser, verb: str) -> None:
    parser.add_argument("batch", metavar="BATCH", help="id of the batch")
    job_actions.add_confirmation(parser, verb)


def describe(view: BatchView, kind: str, count: int) -> str:
    """Return text such as "3 dead members of batch report". `kind` is "dead" or "live"."""
    members = "member" if count == 1 else "members"
    return f"{count:,} {kind} {members} of batch {view.name}"


def run(
    verb: str, view: BatchView, text: str, options: dict[str, Any], act: Callable[[], int]
) -> CommandResult:
    """Run `act` if the user confirms it. Without that, or for a dry run, report only its effect.

    `text` describes the members, and `act` returns how many it changed. Raise ConfigurationError if
    there is neither `--yes` nor a terminal to ask on.
    """
    if not options["dry_run"]:
        job_actions.require_confirmation(yes=options["yes"])
    question = f"{verb.capitalize()} {text}?"
    if options["dry_run"] or not job_actions.confirm(question, yes=options["yes"]):
        content = {**rendering.summarize(view), DONE[verb]: 0}
        return CommandResult(content, [f"{text}: would be {DONE[verb]}."])
    done = act()
    content = {"batch": rendering.text_id(view), DONE[verb]: done}
    return CommandResult(
        content, [f"Members of batch {view.name} that were {DONE[verb]}: {done:,}."]
    )
