"""Route ack: outcomes of jobs, each settled by itself, optionally with the next pull."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple
from uuid import UUID

from rest_framework.exceptions import Throttled

from pulljobs import emission, ids, pulling
from pulljobs.api import error_answers, throttling
from pulljobs.api.leases.bodies import (
    AckBody,
    AckedBody,
    HeldBody,
    ItemStatus,
    JobOutcome,
    OutcomeBody,
    PulledBody,
    SettledBody,
)
from pulljobs.api.leases.lease_view import LeaseView
from pulljobs.api.leases.long_poll.pending import PullAnswer, PullReason, PullRequest
from pulljobs.api.leases.pull import pull, render_pulled, render_refused, to_request
from pulljobs.api.reading import read_body
from pulljobs.conf import settings
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.models import Consumer
from pulljobs.outcome_texts import clean
from pulljobs.states import Event
from pulljobs.storage import limits, listen, protocol
from pulljobs.storage.rows import Finished

LONGEST_DELAY: Final = 3600.0
NO_LEASE: Final = UUID(int=0)
"""Token that no lease has, for those are random."""
NO_REASON: Final = "The consumer rejected the job (ack)."
NO_ERROR: Final = "The consumer asked for a retry (ack)."


class AckItem(NamedTuple):
    """Job as the caller names it, with its settlement or None if no job has such an id."""

    id: str
    settlement: Settlement | None
    throttle: float = 0.0
    """Seconds for which no job of the consumer, or of the key, is claimed."""
    is_of_key: bool = False


class BegunAck(NamedTuple):
    """Ack whose outcomes are settled, before its pull."""

    body: AckedBody
    is_settled: bool
    """True if every item was settled."""
    asked: PullRequest | None
    wait: float | None = None
    """Seconds until the next pull, which is throttled together with requests of the pull route."""


class AckView(LeaseView[BegunAck]):
    largest_body = 2 * 1024 * 1024

    def held_jobs(self, body: bytes) -> list[Held]:
        items = _read_items(read_body(AckBody, body))
        return [item.settlement.held for item in items if item.settlement]

    def begin(self, consumer: Consumer, body: bytes) -> BegunAck:
        given = read_body(AckBody, body)
        items, pull_body = _read_items(given), given.get("Pull")
        asked = None if pull_body is None else to_request(pull_body)
        statuses = settle(consumer, items)
        results: list[SettledBody] = [
            {"ID": item.id, "Status": status} for item, status in zip(items, statuses, strict=True)
        ]
        is_settled = set(statuses) <= {ItemStatus.OK}
        wait = throttling.seconds_to_wait("pull", consumer) if asked and is_settled else None
        return BegunAck({"Results": results}, is_settled, asked, wait)

    async def finish(self, consumer: Consumer, begun: BegunAck) -> AckedBody:
        body, is_settled, asked, wait = begun
        if asked is None:
            return body
        if not is_settled:
            pulled = render_pulled(asked, PullAnswer(PullReason.ACK_FAILED))
        elif wait is not None:
            pulled = render_refused(asked, Throttled(wait))
        else:
            pulled = await self._pull(consumer, asked)
        return {**body, **pulled}

    async def _pull(self, consumer: Consumer, asked: PullRequest) -> PulledBody:
        """Pull. A refusal is part of the body, so that the client receives the results above it."""
        try:
            return await pull(self, consumer, asked)
        except Exception as error:
            refusal = error_answers.refusal_of(error)
            if refusal is None:
                raise
            return render_refused(asked, refusal)


def settle(consumer: Consumer, items: Sequence[AckItem]) -> list[ItemStatus]:
    """Settle items in their order. A later item about the same job finds it settled, or locked."""
    using = settings().DATABASE
    named = [item.settlement.held.job_id for item in items if item.settlement]
    owned = protocol.jobs_of(using, consumer.pk, named)
    _throttle(consumer, [item for item in items if item.throttle], owned)
    statuses = [ItemStatus.NOT_FOUND] * len(items)
    open_items = {
        index: item.settlement
        for index, item in enumerate(items)
        if item.settlement and item.settlement.held.job_id in owned
    }
    while open_items:
        first = {item.held.job_id: index for index, item in reversed(open_items.items())}
        batch = {index: open_items.pop(index) for index in first.values()}
        by_job = _finish(consumer, list(batch.values()))
        for index, item in {**batch, **open_items}.items():
            status = by_job[item.held.job_id]
            if index in batch or status is ItemStatus.LOCKED:
                statuses[index] = status
                open_items.pop(index, None)
    return statuses


def _throttle(consumer: Consumer, items: Sequence[AckItem], owned: Collection[int]) -> None:
    """Throttle the consumer, or keys of jobs of it, before the outcomes are written."""
    using = settings().DATABASE
    asked = [
        (item.settlement.held.job_id, item)
        for item in items
        if item.settlement and item.settlement.held.job_id in owned
    ]
    if seconds := max((item.throttle for _id, item in asked if not item.is_of_key), default=0.0):
        limits.throttle(using, {consumer.pk: seconds})
    of_keys = {id: item.throttle for id, item in asked if item.is_of_key}
    if of_keys:
        limits.throttle_keys_of_jobs(using, consumer.pk, of_keys)


def _finish(consumer: Consumer, settlements: list[Settlement]) -> dict[int, ItemStatus]:
    """Settle different jobs, and return the status of each by its id."""
    finished = pulling.finish(settlements, emission.paths_of(consumer, settlements))
    if any(
        settlement.event is Event.RETRY and settlement.held.job_id in finished.states
        for settlement in settlements
    ):
        # Waiting pulls have to learn when the job becomes available.
        listen.wake_on_commit(settings().DATABASE, [consumer.pk])
    job_ids = [settlement.held.job_id for settlement in settlements]
    return {job_id: _status_of(job_id, finished) for job_id in job_ids}


def _status_of(job_id: int, finished: Finished) -> ItemStatus:
    if job_id in finished.states:
        return ItemStatus.OK
    if job_id in finished.locked:
        return ItemStatus.LOCKED
    return ItemStatus.REFUSED if job_id in finished.refused else ItemStatus.LEASE_LOST


def find_held(given: HeldBody | OutcomeBody) -> Held | None:
    """Return the job and the lease that an item names, or None if no job has such an id."""
    try:
        return Held(ids.decode(given["ID"]), _parse_token(given["LeaseToken"]))
    except ValueError:
        return None


def _parse_token(lease_token: str) -> UUID:
    try:
        return UUID(lease_token)
    except ValueError:
        return NO_LEASE


def _read_items(given: AckBody) -> list[AckItem]:
    return [_read_item(item) for item in given.get("Results") or ()]


def _read_item(given: OutcomeBody) -> AckItem:
    held = find_held(given)
    if held is None:
        return AckItem(given["ID"], None)
    text = clean(": ".join(filter(None, (given.get("Reason"), given.get("Error")))))
    settlement = OUTCOMES[given["Outcome"]](held, text, given.get("DelaySeconds"))
    throttle, is_of_key = given.get("ThrottleSeconds") or 0.0, bool(given.get("ThrottleKey"))
    return AckItem(given["ID"], settlement, throttle, is_of_key)


def _retry(held: Held, text: str, delay: float | None) -> Settlement:
    return outcomes.retry(held, text or NO_ERROR, after=_after(delay))


def _after(delay: float | None) -> timedelta | None:
    return None if delay is None else timedelta(seconds=min(delay, LONGEST_DELAY))


OUTCOMES: Final[Mapping[JobOutcome, Callable[[Held, str, float | None], Settlement]]] = {
    JobOutcome.DELIVERED: lambda held, text, delay: outcomes.deliver(held),
    JobOutcome.DEAD: lambda held, text, delay: outcomes.reject(held, text or NO_REASON),
    JobOutcome.RETRY: _retry,
    JobOutcome.RELEASE: lambda held, text, delay: outcomes.release(held, after=_after(delay)),
}
