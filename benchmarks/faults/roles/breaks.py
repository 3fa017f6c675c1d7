"""Breaks of pulljobs within one process: the checker has to find each of them.

claim   claims jobs that other processes hold
fence   settles under any lease token
flush   drops some outcomes and reports them as written
publish reports a commit and removes the job
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, LiteralString

from django.db import connections

from pulljobs import publishing
from pulljobs.engine.outcomes import Settlement
from pulljobs.engine.sql import statement
from pulljobs.states import Event, State
from pulljobs.storage import jobs, statements
from pulljobs.storage.rows import Finished

SHARE: Final = 0.02
SHARE_OF_PUBLISHES: Final = 0.2
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


def install(names: str) -> None:
    """Install the breaks whose names are given, separated by commas."""
    for name in filter(None, names.split(",")):
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


def _replace(module: Any, name: str, value: Any) -> None:
    setattr(module, name, value)


BREAKS: Final[dict[LiteralString, Callable[[], None]]] = {
    "claim": lambda: _change(CLAIM_HELD_JOBS),
    "fence": lambda: _change(SETTLE_ANY_TOKEN),
    "flush": _forget_flushes,
    "publish": _forget_publishes,
}
