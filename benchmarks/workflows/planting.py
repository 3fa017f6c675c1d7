"""Violations that are planted in the tables and files of a run, one for each rule."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psycopg

from benchmarks.workflows.recording import CALLS

Connection = psycopg.Connection[Any]
SOME_RUN: Final = (
    "SELECT archived.job_id, archived.result FROM pulljobs_archived_job AS archived"
    " JOIN proof_effect ON run_id = archived.job_id WHERE archived.state = 'DELIVERED' LIMIT 1"
)


def write_twice(connection: Connection, folder: Path) -> None:
    """Write an effect of a run a second time."""
    connection.execute("INSERT INTO proof_effect SELECT * FROM proof_effect LIMIT 1")


def swap_results(connection: Connection, folder: Path) -> None:
    """Turn the results of a run around."""
    run, result = _find_run(connection)
    turned = json.dumps({**result, "parts": result["parts"][::-1]})
    connection.execute(
        "UPDATE pulljobs_archived_job SET result = %s WHERE job_id = %s", [turned, run]
    )


def call_late(connection: Connection, folder: Path) -> None:
    """Record a call of the first step by the claim that stored the last one."""
    run, result = _find_run(connection)
    call = [run, "call", result["calls"][1]]
    (folder / f"{CALLS}-planted").write_text(json.dumps(call) + "\n")


def _find_run(connection: Connection) -> tuple[int, dict[str, Any]]:
    row = connection.execute(SOME_RUN).fetchone()
    if row is None:
        raise LookupError("No run was delivered: nothing can be planted.")
    return row[0], row[1]


def leave_run(connection: Connection, folder: Path) -> None:
    """Queue a run again that has ended, after the last process."""
    connection.execute(
        "INSERT INTO pulljobs_job"
        " (id, message_id, consumer_id, available_at, priority, state, retry_count, deliveries)"
        " SELECT job_id, message_id, consumer_id, settled_at, 0, 'QUEUED', 0, 0"
        " FROM pulljobs_archived_job LIMIT 1"
    )


PLANTS: Final[dict[str, Callable[[Connection, Path], None]]] = {
    "effects_happen_once": write_twice,
    "results_are_in_order": swap_results,
    "no_call_after_its_result": call_late,
    "no_run_is_stuck": leave_run,
}
