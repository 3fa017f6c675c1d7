"""Give back what leases hold that are over, as every worker does."""

from typing import Any

from pulljobs import pulling
from pulljobs.management.subcommands import Answer
from pulljobs.progress import shown


def handle(**options: Any) -> Answer:
    with shown("reap", "jobs") as progress:
        while (jobs := pulling.reap()) is not None:
            progress.advance(jobs)
    return Answer.of({"given_back": progress.done})
