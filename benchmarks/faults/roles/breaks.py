"""Breaks of pulljobs within one process: the checker has to find each of them.

claim   claims jobs that other processes hold
fence   settles under any lease token
spend   claims without taking tokens of the rate
cost    claims take one token, whatever the job costs
twice   a released job gives its tokens back twice
window  each claim begins a window of its own
group   counts the jobs in flight of one consumer, not of its group
late    waits for the next token twice as long as necessary
slots   counts the jobs of a key by rows that are newer than the claim's snapshot
turn    a key that was served keeps its turn
throttle
        throttles a consumer in its own process only
flush   drops some outcomes and reports them as written
publish reports a commit and removes the job
wait    holds back some outcomes for longer than a lease
charge  charges some jobs without running them
ready   says always that a process is ready
replace lets the supervisor replace a healthy process

`client_breaks` has the breaks of HTTP clients.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, LiteralString

from django.db import connections

from benchmarks.faults.roles import client_breaks
from benchmarks.faults.roles.environment import LEASE_DURATION
from pulljobs import publishing
from pulljobs.engine import outcomes
from pulljobs.engine.claiming.limits import Bucket
from pulljobs.engine.outcomes import Settlement
from pulljobs.engine.sql import statement
from pulljobs.handlers import ClaimedJob
from pulljobs.states import Event, State
from pulljobs.storage import jobs, statements
from pulljobs.storage.rows import Finished
from pulljobs.worker import executor, thread_pool
from pulljobs.worker.shared_state import SharedState

SHARE: Final = 0.02
SHARE_OF_PUBLISHES: Final = 0.2
HEALTHY_SECONDS: Final = 8.0
"""Time after which the break `replace` makes a process look unhealthy."""
Changes = Mapping[str, Sequence[tuple[str, str]]]
HELD_BY_OTHERS: Final = (
    ("AND state = 'QUEUED'", "AND state IN ('QUEUED', 'INFLIGHT')"),
    ("FOR UPDATE SKIP LOCKED", "FOR UPDATE"),
)
CLAIM_HELD_JOBS: Final[Changes] = {"claim": HELD_BY_OTHERS, "claim_level": HELD_BY_OTHERS}
SETTLE_ANY_TOKEN: Final[Changes] = {
    "finish": (
        (
            "AND ((id, lease_token) IN (SELECT job_id, lease_token FROM offered"
            " WHERE event = 'deliver'))"
            " IS TRUE",
            "",
        ),
    ),
    "deliver": (
        (
            "AND state = 'INFLIGHT' AND lease_token = %(lease_token)s::uuid",
            "AND state = 'INFLIGHT'",
        ),
    ),
}
SPEND_NOTHING: Final[Changes] = {"spend": (("END - bill.spent,", "END,"),)}
SPEND_ONE_TOKEN: Final[Changes] = {"spend": (("coalesce(cost, 1)", "1"),)}
GIVE_BACK_TWICE: Final[Changes] = {
    "give_back": (("bucket.tokens + given.tokens", "bucket.tokens + 2 * given.tokens"),)
}
FORGET_WINDOWS: Final[Changes] = {
    "spend": (("> %(read_at)s::timestamptz", ">= %(read_at)s::timestamptz - interval '1 hour'"),)
}
COUNT_ALONE: Final[Changes] = {
    "allowance": (
        (
            "ARRAY(SELECT id FROM pulljobs_consumer WHERE limit_group_id = level.group_id)",
            "ARRAY[%(consumer_id)s::bigint]",
        ),
    )
}
COUNT_NEWER_SLOTS: Final[Changes] = {
    "claim_turns": (("pg_visible_in_snapshot(writer, (SELECT pg_current_snapshot()))", "true"),)
}
KEEP_TURNS: Final[Changes] = {
    "claim_turns": (("ELSE moment.now + (number", "ELSE turn_at + 0 * (number"),)
}
THROTTLE_NOTHING: Final[Changes] = {
    "throttle": (("SET throttled_until = asked.until", "SET throttled_until = clock_timestamp()"),)
}


def install(names: str) -> None:
    """Break pulljobs in this process in the named ways, which are separated by commas."""
    for name in filter(None, names.split(",")):
        if name not in client_breaks.BREAKS:
            BREAKS[name]()


def _change(changes: Changes) -> None:

    def changed(asked: str) -> str:
        text: str = statement(asked)
        for old, new in changes.get(asked, ()):
            if old not in text:
                raise LookupError(f"{asked}.sql does not contain {old!r}: adapt the break.")
            text = text.replace(old, new)
        return text

    _replace(statements, "statement", changed)


def _forget_flushes() -> None:
    genuine = jobs.finish

    def finish(using: str, settlements: Sequence[Settlement], **options: Any) -> Finished:
        forgotten = {
            settlement.held.job_id: State.DELIVERED
            for settlement in settlements
            if settlement.event is Event.DELIVER and random.random() < SHARE
        }
        kept = [each for each in settlements if each.held.job_id not in forgotten]
        finished = genuine(using, kept, **options)
        return replace(finished, states=finished.states | forgotten)

    _replace(jobs, "finish", finish)


def _forget_publishes() -> None:
    genuine = publishing.publish_many

    def publish_many(*args: Any, **kwargs: Any) -> Any:
        receipts = genuine(*args, **kwargs)
        if random.random() < SHARE_OF_PUBLISHES:
            with connections["default"].cursor() as cursor:
                cursor.execute("DELETE FROM pulljobs_job WHERE id = %s", [receipts[0].job_ids[0]])
        return receipts

    _replace(publishing, "publish_many", publish_many)


def _hold_back_outcomes() -> None:
    genuine = jobs.finish

    def finish(using: str, settlements: Sequence[Settlement], **options: Any) -> Finished:
        if settlements and random.random() < SHARE:
            time.sleep(1.5 * LEASE_DURATION)
        return genuine(using, settlements, **options)

    _replace(jobs, "finish", finish)


def _charge_without_a_run() -> None:
    genuine = executor.perform

    def perform(job: ClaimedJob) -> Settlement | None:
        if random.random() < SHARE:
            return outcomes.retry(job.held, "charged without a run")
        return genuine(job)

    _replace(thread_pool, "perform", perform)


def _wait_twice() -> None:
    genuine = Bucket.time_to

    def time_to(bucket: Bucket, cost: float) -> timedelta:
        return 2 * genuine(bucket, cost) + timedelta(seconds=0.5)

    _replace(Bucket, "time_to", time_to)


def _seem_ready() -> None:
    _replace(SharedState, "is_ready", lambda state, patience: True)


def _seem_unhealthy() -> None:
    genuine, since = SharedState.beat, time.monotonic()

    def beat(state: SharedState, *, is_healthy: bool) -> None:
        genuine(state, is_healthy=is_healthy and time.monotonic() < since + HEALTHY_SECONDS)

    _replace(SharedState, "beat", beat)


def _replace(module: Any, name: str, value: Any) -> None:
    setattr(module, name, value)


BREAKS: Final[dict[LiteralString, Callable[[], None]]] = {
    "claim": lambda: _change(CLAIM_HELD_JOBS),
    "fence": lambda: _change(SETTLE_ANY_TOKEN),
    "spend": lambda: _change(SPEND_NOTHING),
    "cost": lambda: _change(SPEND_ONE_TOKEN),
    "twice": lambda: _change(GIVE_BACK_TWICE),
    "window": lambda: _change(FORGET_WINDOWS),
    "group": lambda: _change(COUNT_ALONE),
    "late": _wait_twice,
    "slots": lambda: _change(COUNT_NEWER_SLOTS),
    "turn": lambda: _change(KEEP_TURNS),
    "throttle": lambda: _change(THROTTLE_NOTHING),
    "flush": _forget_flushes,
    "publish": _forget_publishes,
    "wait": _hold_back_outcomes,
    "charge": _charge_without_a_run,
    "ready": _seem_ready,
    "replace": _seem_unhealthy,
}
