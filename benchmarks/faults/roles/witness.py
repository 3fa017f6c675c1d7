"""Writes down what goes through the storage verbs, on the way to the database and back.

It stands between the worker and the database, so it depends on no word of either: an outcome that
the worker drops is `ended` and never `sent`; one that the database drops is `answered` and not in
its tables.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial, wraps
from time import monotonic
from types import ModuleType
from typing import Any, Final, ParamSpec, TypeVar

from django.db import transaction

from benchmarks.faults.history import (
    ANSWERED,
    CLAIMED,
    GIVING_BACK,
    LOST,
    REFUSED,
    RENEWED,
    SENT,
    STARTED,
    Entry,
    Pen,
)
from benchmarks.faults.roles.surroundings import LEASE, ROLE
from pulljobs.engine.claiming import guarded
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.storage import jobs
from pulljobs.storage.rows import Finished
from pulljobs.storage.statements import AliasSession

P = ParamSpec("P")
R = TypeVar("R")
_inside = threading.local()


def install(pen: Pen) -> None:
    for module, name, wrap in WRAPPERS:
        genuine = getattr(module, name)
        setattr(module, name, _once(genuine, wrap(pen, genuine)))


def _once(genuine: Callable[P, R], watched: Callable[P, R]) -> Callable[P, R]:
    """Verbs call themselves again for parts of a batch: only the outermost call is seen."""

    @wraps(genuine)
    def verb(*args: P.args, **kwargs: P.kwargs) -> R:
        if getattr(_inside, "verb", False):
            return genuine(*args, **kwargs)
        _inside.verb = True
        try:
            return watched(*args, **kwargs)
        finally:
            _inside.verb = False

    return verb


def _claim(pen: Pen, genuine: Callable[..., Any]) -> Callable[..., Any]:
    def claim(where: str | AliasSession, *args: Any, **kwargs: Any) -> Any:
        using = where if isinstance(where, str) else where.using
        since = monotonic()
        claimed = genuine(where, *args, **kwargs)
        if claimed is not None and claimed.taken is not None:
            token = claimed.taken.lease_token
            entries = [
                Entry(job.id, token, "-", job.retry_count, job.deliveries) for job in claimed.jobs
            ]
            _when_written(using, partial(pen.write, CLAIMED, entries, since=since, seconds=LEASE))
            if ROLE == "claimer":  # Of its leases nobody knows more: all that it claims is charged.
                _when_written(using, partial(pen.write, STARTED, entries))
        return claimed

    return claim


def _renew(pen: Pen, genuine: Callable[..., Any]) -> Callable[..., Any]:
    def renew(using: str, held: Sequence[Held], *args: Any, **kwargs: Any) -> Any:
        since = monotonic()
        renewed = genuine(using, held, *args, **kwargs)
        if renewed:
            entries = [Entry(*one) for one in renewed]
            _when_written(using, partial(pen.write, RENEWED, entries, since=since, seconds=LEASE))
        return renewed

    return renew


def _finish(pen: Pen, genuine: Callable[..., Finished]) -> Callable[..., Finished]:
    def finish(using: str, settlements: Sequence[Settlement]) -> Finished:
        if not settlements:
            return genuine(using, settlements)
        pen.write(SENT, [Entry(*one.held, str(one.event)) for one in settlements])
        since = monotonic()
        finished = genuine(using, settlements)
        answers = [Entry(*one.held, _answer(finished, one.held.job_id)) for one in settlements]
        _when_written(using, partial(pen.write, ANSWERED, answers, since=since))
        return finished

    return finish


def _abandon(pen: Pen, genuine: Callable[..., Any]) -> Callable[..., Any]:
    def abandon(*args: Any, **kwargs: Any) -> Any:
        known = " ".join(map(str, kwargs.get("but", ())))
        pen.write(GIVING_BACK, [Entry(0, said=known)])
        return genuine(*args, **kwargs)

    return abandon


def _answer(finished: Finished, job_id: int) -> str:
    if job_id in finished.refused:
        return REFUSED
    return str(finished.states.get(job_id, LOST))


def _when_written(using: str, note: Callable[[], None]) -> None:
    """At once, or after the commit of the transaction that the verb joined."""
    transaction.on_commit(note, using=using)


Wrap = Callable[[Pen, Callable[..., Any]], Callable[..., Any]]

WRAPPERS: Final[tuple[tuple[ModuleType, str, Wrap], ...]] = (
    (jobs, "claim", _claim),
    (guarded, "claim", _claim),
    (jobs, "renew", _renew),
    (jobs, "finish", _finish),
    (jobs, "abandon", _abandon),
)
