"""Witness that records all claims, renewals, settlements and throttles, with their answers.

It stands between the worker and the database and trusts neither. An outcome that the worker drops
is `ended` and never `sent`. An outcome that the database drops is `answered` and not in its tables.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from time import monotonic
from types import ModuleType
from typing import Any, Final, ParamSpec, TypeVar

from django.db import transaction

from benchmarks.faults.history import (
    ANSWERED,
    CLAIMED,
    ENDED,
    GIVING_BACK,
    LOST,
    REFUSED,
    RENEWED,
    SENT,
    STARTED,
    THROTTLED,
    Entry,
    HistoryWriter,
)
from benchmarks.faults.roles.environment import LEASE_DURATION, ROLE
from pulljobs.engine.claiming import guarded
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.handlers import ClaimedJob
from pulljobs.storage import jobs, leases, throttles
from pulljobs.storage.rows import Finished
from pulljobs.storage.statements import AliasSession
from pulljobs.webhooks.requests import Endpoint
from pulljobs.worker.push_delivery import PushDelivery

P = ParamSpec("P")
R = TypeVar("R")
_inside = threading.local()


def install(writer: HistoryWriter) -> None:
    """Wrap the functions that claim, renew, settle and throttle, to record their calls."""
    for module, function, wrap in WRAPPERS:
        genuine = getattr(module, function.__name__)  # It may be broken on purpose by now.
        setattr(module, function.__name__, _once(genuine, wrap(writer, genuine)))
    _watch_deliveries(writer)


def _once(genuine: Callable[P, R], watched: Callable[P, R]) -> Callable[P, R]:
    """Return a function that calls `watched`, or `genuine` inside of another recorded call.

    The recorded functions call themselves again for a few of their jobs.
    """

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


def _claim(writer: HistoryWriter, genuine: Callable[..., Any]) -> Callable[..., Any]:
    def claim(session: AliasSession, *args: Any, **kwargs: Any) -> Any:
        using, since = session.using, monotonic()
        claimed = genuine(session, *args, **kwargs)
        if claimed is not None and claimed.taken is not None:
            token = claimed.taken.lease_token
            entries = [
                Entry(job.id, token, "-", job.retry_count, job.deliveries) for job in claimed.jobs
            ]
            _when_written(
                using, partial(writer.write, CLAIMED, entries, since=since, seconds=LEASE_DURATION)
            )
            # A lost job of a claimer is charged, so all its jobs are recorded as started.
            if ROLE in ("claimer", "vanisher"):
                _when_written(using, partial(writer.write, STARTED, entries))
        return claimed

    return claim


def _renew(writer: HistoryWriter, genuine: Callable[..., Any]) -> Callable[..., Any]:
    def renew(using: str, held: Sequence[Held], *args: Any, **kwargs: Any) -> Any:
        since = monotonic()
        renewed = genuine(using, held, *args, **kwargs)
        if renewed:
            entries = [Entry(*pair) for pair in renewed]
            _when_written(
                using, partial(writer.write, RENEWED, entries, since=since, seconds=LEASE_DURATION)
            )
        return renewed

    return renew


def _finish(writer: HistoryWriter, genuine: Callable[..., Finished]) -> Callable[..., Finished]:
    def finish(using: str, settlements: Sequence[Settlement], **options: Any) -> Finished:
        if not settlements:
            return genuine(using, settlements, **options)
        writer.write(SENT, [Entry(*each.held, str(each.event)) for each in settlements])
        since = monotonic()
        finished = genuine(using, settlements, **options)
        answers = [
            Entry(*each.held, _answer(finished, each.held.job_id))
            for each in settlements
            if each.held.job_id not in finished.locked  # The worker tries it again.
        ]
        _when_written(using, partial(writer.write, ANSWERED, answers, since=since))
        return finished

    return finish


def _abandon(writer: HistoryWriter, genuine: Callable[..., Any]) -> Callable[..., Any]:
    def abandon(*args: Any, **kwargs: Any) -> Any:
        known = " ".join(map(str, kwargs.get("but", ())))
        writer.write(GIVING_BACK, [Entry(0, outcome=known)])
        return genuine(*args, **kwargs)

    return abandon


def _throttle(writer: HistoryWriter, genuine: Callable[..., None]) -> Callable[..., None]:
    def throttle(using: str, seconds: Mapping[int, float]) -> None:
        since = monotonic()
        genuine(using, seconds)
        for consumer_id, wait in seconds.items():
            writer.write(THROTTLED, [Entry(0, outcome=str(consumer_id))], since=since, seconds=wait)

    return throttle


def _watch_deliveries(writer: HistoryWriter) -> None:
    """Record the start and the end of each push delivery, as handlers of workers do themselves."""
    genuine = PushDelivery.send

    async def send(delivery: PushDelivery, endpoint: Endpoint, job: ClaimedJob) -> None:
        entry = Entry(job.id, job.held.lease_token)
        writer.write(STARTED, [entry])
        try:
            await genuine(delivery, endpoint, job)
        finally:
            writer.write(ENDED, [entry])

    watched: Any = PushDelivery
    watched.send = send


def _answer(finished: Finished, job_id: int) -> str:
    if job_id in finished.refused:
        return REFUSED
    return str(finished.states.get(job_id, LOST))


def _when_written(using: str, note: Callable[[], None]) -> None:
    """Call `note` after the commit of the open transaction, or now if there is none."""
    transaction.on_commit(note, using=using)


Wrap = Callable[[HistoryWriter, Callable[..., Any]], Callable[..., Any]]

WRAPPERS: Final[tuple[tuple[ModuleType, Callable[..., Any], Wrap], ...]] = (
    (guarded, guarded.claim, _claim),
    (leases, leases.renew, _renew),
    (jobs, jobs.finish, _finish),
    (jobs, jobs.abandon, _abandon),
    (throttles, throttles.throttle, _throttle),
)
