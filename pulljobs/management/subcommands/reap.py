"""Give back the jobs of expired leases, as every worker does."""

from typing import Any

from pulljobs import pulling
from pulljobs.management.subcommands import CommandResult
from pulljobs.progress import show_progress


def handle(**options: Any) -> CommandResult:
    with show_progress("reap", "jobs") as progress:
        while (jobs := pulling.reap()) is not None:
            progress.advance(jobs)
    return CommandResult.from_facts({"given_back": progress.done})
