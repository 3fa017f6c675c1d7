"""Route ack: outcomes of jobs, each settled by itself, optionally with the next pull."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import islice
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


class OwnedItem(NamedTuple):
    """Item about a job that belongs to its consumer."""

    consumer: Consumer
    settlement: Settlement
    throttle: float
    is_of_key: bool

    @property
    def job_id(self) -> int:
        return self.settlement.held.job_id


class AckRequest(NamedTuple):
    """Ack as a request asks for it."""

    items: list[AckItem]
    pull: PullRequest | None


class DoneAck(NamedTuple):
    """Ack whose outcomes are settled, before its pull."""

    body: AckedBody
    is_settled: bool
    """True if every item was settled."""
    asked: PullRequest | None
    wait: float | None = None
    """Seconds until the next pull, which is throttled together with requests of the pull route."""


class AckView(LeaseView[AckRequest, DoneAck]):
    largest_body = 2 * 1024 * 1024

    def held_jobs(self, body: bytes) -> list[Held]:
        items = _read_items(read_body(AckBody, body))
        return [item.settlement.held for item in items if item.settlement]

    def parse(self, consumer: Consumer, body: bytes) -> AckRequest:
        given = read_body(AckBody, body)
        pull_body = given.get("Pull")
        return AckRequest(_read_items(given), None if pull_body is None else to_request(pull_body))

    @classmethod
    def do(cls, asked: Sequence[tuple[Consumer, AckRequest]]) -> list[DoneAck]:
        every = settle([(consumer, request.items) for consumer, request in asked])
        return [
            _done(consumer, request, statuses)
            for (consumer, request), statuses in zip(asked, every, strict=True)
        ]

    async def finish(self, consumer: Consumer, done: DoneAck) -> AckedBody:
        body, is_settled, asked, wait = done
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


def _done(consumer: Consumer, request: AckRequest, statuses: Sequence[ItemStatus]) -> DoneAck:
    results: list[SettledBody] = [
        {"ID": item.id, "Status": status}
        for item, status in zip(request.items, statuses, strict=True)
    ]
    is_settled = set(statuses) <= {ItemStatus.OK}
    is_pull = request.pull is not None and is_settled
    wait = throttling.seconds_to_wait("pull", consumer) if is_pull else None
    return DoneAck({"Results": results}, is_settled, request.pull, wait)


def settle(asked: Sequence[tuple[Consumer, Sequence[AckItem]]]) -> list[list[ItemStatus]]:
    """Settle items of consumers in their order, and return the statuses for each consumer.

    A later item about the same job finds it settled, or locked.
    """
    every = [(consumer, item) for consumer, items in asked for item in items]
    open_items = _find_owned(every)
    _throttle(open_items.values())
    statuses = [ItemStatus.NOT_FOUND] * len(every)
    while open_items:
        first = {item.job_id: index for index, item in reversed(open_items.items())}
        batch = {index: open_items.pop(index) for index in first.values()}
        by_job = _finish(list(batch.values()))
        for index, item in {**batch, **open_items}.items():
            status = by_job[item.job_id]
            if index in batch or status is ItemStatus.LOCKED:
                statuses[index] = status
                open_items.pop(index, None)
    rest = iter(statuses)
    return [list(islice(rest, len(items))) for _consumer, items in asked]


def _find_owned(every: Sequence[tuple[Consumer, AckItem]]) -> dict[int, OwnedItem]:
    """Return the items about jobs that belong to their consumers, by their numbers."""
    items = [
        OwnedItem(consumer, item.settlement, item.throttle, item.is_of_key)
        if item.settlement
        else None
        for consumer, item in every
    ]
    owners = protocol.owners_of(settings().DATABASE, {item.job_id for item in items if item})
    return {
        number: item
        for number, item in enumerate(items)
        if item and owners.get(item.job_id) == item.consumer.pk
    }


def _throttle(items: Iterable[OwnedItem]) -> None:
    """Throttle consumers, or keys of jobs of theirs, before the outcomes are written."""
    using, throttled = settings().DATABASE, [item for item in items if item.throttle]
    consumers: defaultdict[int, float] = defaultdict(float)
    of_keys: defaultdict[int, dict[int, float]] = defaultdict(dict)
    for id, item in ((item.consumer.pk, item) for item in throttled):
        if item.is_of_key:
            of_keys[id][item.job_id] = item.throttle
        else:
            consumers[id] = max(consumers[id], item.throttle)
    if consumers:
        limits.throttle(using, consumers)
    for consumer_id, by_job in sorted(of_keys.items()):
        limits.throttle_keys_of_jobs(using, consumer_id, by_job)


def _finish(items: Sequence[OwnedItem]) -> dict[int, ItemStatus]:
    """Settle different jobs, and return the status of each by its id."""
    paths = {item.job_id: emission.path_of(item.consumer) for item in items}
    finished = pulling.finish([item.settlement for item in items], lambda: paths)
    retried = {
        item.consumer.pk
        for item in items
        if item.settlement.event is Event.RETRY and item.job_id in finished.states
    }
    # Waiting pulls have to learn when the job becomes available.
    listen.wake_on_commit(settings().DATABASE, retried)
    return {job_id: _status_of(job_id, finished) for job_id in paths}


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
