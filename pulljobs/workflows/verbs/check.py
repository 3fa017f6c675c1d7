"""Replay stored runs against the present code, and list those whose next step would differ.

No step is called. Run it before a deploy. The exit code is 1 if it lists a run.
"""

from argparse import ArgumentParser
from typing import Any

from pulljobs import handlers
from pulljobs.management.output_blocks import StyledText, TableBlock, Tone, text_columns
from pulljobs.management.parsing import whole_number
from pulljobs.management.subcommands import CommandResult
from pulljobs.workflows import checking


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--version-of-runs", type=whole_number(1), metavar="N", help="only runs of this version"
    )


def handle(*, version_of_runs: int | None, **options: Any) -> CommandResult:
    handlers.autodiscover()
    checked = checking.check_runs(version_of_runs)
    broken = [run._asdict() for run in checked.broken]
    summary = (
        f"Replayed runs: {checked.replayed:,}. Runs that would differ or have no workflow: "
        f"{len(broken):,}. Runs of versions that this code leaves to others: {checked.left:,}."
    )
    table = TableBlock(
        text_columns("run", "workflow", "version", "problem"),
        [
            [run.id, run.workflow, str(run.version), StyledText(run.problem, Tone.BAD)]
            for run in checked.broken
        ],
        "No run would differ.",
    )
    content = {"replayed": checked.replayed, "left": checked.left, "broken": broken}
    return CommandResult(content, [table, summary], exit_code=1 if broken else 0)
