"""Rules that judge a run of `workflow-faults` by its tables and by the calls of its steps."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import psycopg

from benchmarks.workflows.recording import BOOKED, StepCall, read_calls
from pulljobs import ids

RUNS: Final = (
    "SELECT archived.job_id, archived.state, archived.result FROM pulljobs_archived_job AS archived"
    " JOIN pulljobs_consumer AS consumer ON consumer.id = consumer_id"
    " JOIN pulljobs_channel AS channel ON channel.id = consumer.channel_id"
    " WHERE channel.name LIKE '%-runs'"
)
CLAIMS: Final = (
    "SELECT lease_token::text, min(claimed_at) FROM (SELECT lease_token, claimed_at"
    " FROM pulljobs_archived_job UNION ALL SELECT lease_token, claimed_at FROM pulljobs_attempt)"
    " AS claim GROUP BY lease_token"
)
BATCHES: Final = (
    "SELECT id, completed_at IS NOT NULL, members, delivered + dead FROM pulljobs_batch"
)
CALLBACKS: Final = (
    "SELECT headers ->> 'Pulljobs-Batch', count(*) FROM pulljobs_message AS message"
    " JOIN pulljobs_channel AS channel ON channel.id = channel_id"
    " WHERE channel.name = 'callbacks' GROUP BY 1"
)
LIVE: Final = (
    "SELECT job.id, job.state FROM pulljobs_job AS job"
    " JOIN pulljobs_consumer AS consumer ON consumer.id = consumer_id"
    " JOIN pulljobs_channel AS channel ON channel.id = consumer.channel_id"
    " WHERE channel.name LIKE '%-runs' AND job.state <> 'DEAD'"
)
EFFECTS: Final = "SELECT run_id, part, count(*) FROM proof_effect GROUP BY run_id, part"
CALLED: Final = ("call", "call again")
PARTS: Final = list(range(BOOKED + 1))


@dataclass(frozen=True)
class Evidence:
    """Rows of the tables, and recorded calls of steps, at the end of a run of the benchmark."""

    runs: dict[int, tuple[str, Any]]
    """State and result of each run that ended."""
    live: dict[int, str]
    """State of each run that has not ended."""
    effects: Counter[tuple[int, int]]
    claims: dict[str, datetime]
    calls: list[StepCall]
    batches: list[tuple[int, bool, int, int, int]]
    """Id, True if complete, members, ended members and callbacks of each batch."""


Rule = Callable[[Evidence], Iterator[str]]


def effects_happen_once(evidence: Evidence) -> Iterator[str]:
    """Check that each run that ended wrote all of its effects, and that no run wrote one twice."""
    for (run, part), count in evidence.effects.items():
        if count > 1:
            yield f"run {run} wrote part {part} {count} times"
    for run in evidence.runs:
        missing = [part for part in PARTS if not evidence.effects[run, part]]
        if missing:
            yield f"run {run} ended without the parts {missing}"


def results_are_in_order(evidence: Evidence) -> Iterator[str]:
    """Check that the result of a run has the results of its steps and its signal, in order."""
    for run, (state, result) in evidence.runs.items():
        if state != "DELIVERED":
            yield f"run {run} ended as {state}"
        elif result["parts"] != PARTS or result["signal"] != {"run": run}:
            yield f"run {run} ended with {result}"


def no_call_after_its_result(evidence: Evidence) -> Iterator[str]:
    """Check that no claim after the one that stored the result of a step calls its function."""
    called: dict[tuple[int, str], list[str]] = defaultdict(list)
    for call in evidence.calls:
        called[call.run, call.name].append(call.lease_token)
    for run, (_state, result) in evidence.runs.items():
        for name, stored in zip(CALLED, result["calls"] if result else (), strict=False):
            yield from _late_calls(evidence, f"run {run}, {name}", called[run, name], stored)


def _late_calls(evidence: Evidence, where: str, called: list[str], stored: str) -> Iterator[str]:
    if called.count(stored) != 1:
        yield f"{where}: the claim that stored the result called it {called.count(stored)} times"
    for lease_token in set(called) - {stored}:
        if lease_token not in evidence.claims:
            yield f"{where}: nothing records the claim {lease_token}"
        elif evidence.claims[lease_token] > evidence.claims[stored]:
            yield f"{where}: it was called again, after its result was stored"


def no_run_is_stuck(evidence: Evidence) -> Iterator[str]:
    """Check that every run has ended."""
    for run, state in evidence.live.items():
        yield f"run {run} is {state} when nothing moves any more"


def batches_call_back_once(evidence: Evidence) -> Iterator[str]:
    """Check that every batch is complete, has counted its members and has called back once."""
    for batch, is_complete, members, ended, callbacks in evidence.batches:
        if not is_complete or members != ended:
            yield f"batch {batch} has {ended} of {members} members and is not complete"
        if callbacks != 1:
            yield f"batch {batch} called back {callbacks} times"


RULES: Final[tuple[Rule, ...]] = (
    effects_happen_once,
    results_are_in_order,
    no_call_after_its_result,
    no_run_is_stuck,
    batches_call_back_once,
)


def read_evidence(connection: psycopg.Connection[Any], folder: Path) -> Evidence:
    """Read the tables, and the calls in the files of the processes."""
    callbacks = dict(connection.execute(CALLBACKS).fetchall())
    batches = connection.execute(BATCHES).fetchall()
    return Evidence(
        runs={run: (state, result) for run, state, result in connection.execute(RUNS)},
        live=dict(connection.execute(LIVE).fetchall()),
        effects=Counter({(run, part): count for run, part, count in connection.execute(EFFECTS)}),
        claims=dict(connection.execute(CLAIMS).fetchall()),
        calls=list(read_calls(folder)),
        batches=[(*row, callbacks.get(ids.encode(row[0]), 0)) for row in batches],
    )


def judge(evidence: Evidence) -> dict[str, list[str]]:
    """Return the violations of each broken rule."""
    broken = {rule.__name__: list(rule(evidence)) for rule in RULES}
    return {name: violations for name, violations in broken.items() if violations}
