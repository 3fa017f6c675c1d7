"""Let a run that is DEAD, sleeps or waits go on, by default with the results of all its steps.

A run that sleeps or waits in a step does so again, unless --from-step discards that step.
"""

from argparse import ArgumentParser
from typing import Any

from pulljobs.management.parsing import whole_number
from pulljobs.management.subcommands import CommandResult
from pulljobs.workflows import acting


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="id of the run")
    parser.add_argument(
        "--from-step", metavar="NAME", help="forget this step and those that followed it"
    )
    parser.add_argument(
        "--number",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="which of the steps of that name (%(default)s)",
    )
    parser.add_argument(
        "--discard-signals",
        action="store_true",
        help="let its waits, and those that followed, wait for new signals",
    )


def handle(
    *, run: str, from_step: str | None, number: int, discard_signals: bool, **options: Any
) -> CommandResult:
    from pulljobs.management import job_actions

    start = None if from_step is None else (from_step, number)
    acting.redrive(
        run, from_step=start, discard_signals=discard_signals, by=job_actions.operator_name()
    )
    return CommandResult.from_facts({"run": run, "from_step": from_step or "none"})
