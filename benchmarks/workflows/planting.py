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
    """Reverse the results of the steps in the archived result of a run."""
    run, result = _find_run(connection)
    turned = json.dumps({**result, "parts": result["parts"][::-1]})
    connection.execute(
        "UPDATE pulljobs_archived_job SET result = %s WHERE job_id = %s", [turned, run]
    )


def call_late(connection: Connection, folder: Path) -> None:
    """Record a call of the step `call` by the claim that stored `call again`."""
    run, result = _find_run(connection)
    call = [run, "call", result["calls"][1]]
    (folder / f"{CALLS}-planted").write_text(json.dumps(call) + "\n")


def _find_run(connection: Connection) -> tuple[int, dict[str, Any]]:
    row = connection.execute(SOME_RUN).fetchone()
    if row is None:
        raise LookupError("No run was delivered: nothing can be planted.")
    return row[0], row[1]


def leave_run(connection: Connection, folder: Path) -> None:
    """Turn a dead member of a batch into a queued run, which no process claims."""
    connection.execute(
        "UPDATE pulljobs_job SET state = 'QUEUED', reason = NULL, available_at = clock_timestamp(),"
        " consumer_id = (SELECT consumer.id FROM pulljobs_consumer AS consumer"
        " JOIN pulljobs_channel AS channel ON channel.id = channel_id"
        " WHERE channel.name = 'plain-runs')"
        " WHERE id = (SELECT id FROM pulljobs_job WHERE state = 'DEAD' LIMIT 1)"
    )


def call_back_twice(connection: Connection, folder: Path) -> None:
    """Publish the callback of a batch a second time."""
    connection.execute(
        "INSERT INTO pulljobs_message"
        " (channel_id, published_at, priority, content_type, headers, payload)"
        " SELECT channel_id, published_at, priority, content_type, headers, payload"
        " FROM pulljobs_message AS message JOIN pulljobs_channel AS channel"
        " ON channel.id = channel_id WHERE channel.name = 'callbacks' LIMIT 1"
    )


PLANTS: Final[dict[str, Callable[[Connection, Path], None]]] = {
    "effects_happen_once": write_twice,
    "results_are_in_order": swap_results,
    "no_call_after_its_result": call_late,
    "no_run_is_stuck": leave_run,
    "batches_call_back_once": call_back_twice,
}
