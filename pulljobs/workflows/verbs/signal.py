"""Send a signal to a run."""

import json
from argparse import ArgumentParser
from typing import Any

from pulljobs.management.subcommands import CommandResult
from pulljobs.workflows import acting


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="id of the run")
    parser.add_argument("name", metavar="NAME", help="name of the signal")
    parser.add_argument("--payload", default="null", metavar="JSON", help="payload (%(default)s)")
    parser.add_argument("--dedupe-id", metavar="ID", help="send it only once under this id")


def handle(
    *, run: str, name: str, payload: str, dedupe_id: str | None, **options: Any
) -> CommandResult:
    from pulljobs.management import job_actions

    is_sent = acting.signal(
        run, name, _parse(payload), dedupe_id=dedupe_id, by=job_actions.operator_name()
    )
    return CommandResult.from_facts({"run": run, "signal": name, "is_sent": is_sent})


def _parse(payload: str) -> Any:
    try:
        return json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"--payload must be JSON, not {payload!r:.200}: {error}. Put text into quotes, such as "
            """'"yes"'."""
        ) from error
