"""Route ack: a client reports outcomes with their delays, and may pull the next jobs as well.

Each outcome succeeds or fails by itself. The pull is done only if all of them succeed.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache, partial
from typing import Final, NamedTuple
from uuid import UUID

from pulljobs import ids
from pulljobs.api import error_answers, exceptions, throttling
from pulljobs.api.leases.bodies import (
    AckBody,
    AckedBody,
    HeldBody,
    ItemStatus,
    JobOutcome,
    OutcomeBody,
    PulledBody,
)
from pulljobs.api.leases.lease_view import LeaseView
from pulljobs.api.leases.long_poll.pending import PullAnswer, PullReason, PullRequest
from pulljobs.api.leases.owned_items import AckItem
from pulljobs.api.leases.pull import pull, render_pulled, render_refused, to_request
from pulljobs.api.leases.settling import SettledItems, settle, settle_again, settle_together
from pulljobs.api.reading import read_body
from pulljobs.conf import settings
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.models import Consumer
from pulljobs.outcome_texts import clean, encoded

LONGEST_DELAY: Final = 3600.0
LOCK_PAUSES: Final = (0.01, 0.03, 0.06, 0.1, 0.15, 0.25, 0.4, 0.5, 0.5)
"""Seconds before each further attempt to settle jobs whose rows are locked, 2 s together."""
NO_LEASE: Final = UUID(int=0)
"""Lease token that no lease has, because real ones are random."""
LONGEST_TOKEN: Final = 45
"""Number of characters of the longest form of a UUID."""
NO_REASON: Final = "The consumer rejected the job (ack)."
NO_ERROR: Final = "The consumer asked for a retry (ack)."


class AckRequest(NamedTuple):
    """Parsed body of an ack: the outcomes, and the pull that follows them, or None."""

    items: list[AckItem]
    pull: PullRequest | None


class DoneAck(NamedTuple):
    """Ack whose outcomes were written, except for locked rows, and whose pull, if any, is next."""

    asked: AckRequest
    settled: SettledItems


class AckView(LeaseView[AckRequest, DoneAck]):
    @property
    def largest_body(self) -> int:  # type: ignore[override]  # by a setting
        return settings().largest_ack

    def held_jobs(self, body: bytes) -> list[Held]:
        items = _read_items(read_body(AckBody, body))
        return [item.settlement.held for item in items if item.settlement]

    def parse(self, consumer: Consumer, body: bytes) -> AckRequest:
        given = read_body(AckBody, body)
        pull_body = given.get("Pull")
        return AckRequest(_read_items(given), None if pull_body is None else to_request(pull_body))

    @classmethod
    def do(cls, consumer: Consumer, asked: AckRequest) -> DoneAck:
        return DoneAck(asked, settle(consumer, asked.items))

    @classmethod
    def do_together(cls, asked: Sequence[tuple[Consumer, AckRequest]]) -> list[DoneAck | None]:
        every = settle_together([(consumer, request.items) for consumer, request in asked])
        return [
            None if settled is None else DoneAck(request, settled)
            for (_consumer, request), settled in zip(asked, every, strict=True)
        ]

    async def finish(self, consumer: Consumer, done: DoneAck) -> AckedBody:
        items, asked = done.asked
        statuses = await self._settle_locked(done.settled)
        body: AckedBody = {
            "Results": [
                {"ID": item.id, "Status": status}
                for item, status in zip(items, statuses, strict=True)
            ]
        }
        if asked is None:
            return body
        if set(statuses) <= {ItemStatus.OK}:
            return {**body, **await self._pull(consumer, asked)}
        return {**body, **render_pulled(asked, PullAnswer(PullReason.ACK_FAILED))}

    async def _settle_locked(self, settled: SettledItems) -> list[ItemStatus]:
        """Try again, a few times, to write the outcomes of jobs whose rows were locked.

        Return the statuses of all items, LOCKED if still so. No thread is held during the pauses.
        """
        for pause in LOCK_PAUSES:
            if not settled.set_aside:
                break
            await asyncio.sleep(pause)
            settled = await self.waiters.run(partial(settle_again, settled))
        return settled.statuses

    async def _pull(self, consumer: Consumer, asked: PullRequest) -> PulledBody:
        """Do the pull that follows the ack, and return the part of the answer with its jobs.

        A refused pull becomes a part of the answer, which also has the results of the ack.
        """
        try:
            await self._count_pull(consumer)
            return await pull(self, consumer, asked)
        except Exception as error:
            refusal = error_answers.refusal_of(error)
            if refusal is None:
                raise
            return render_refused(asked, refusal)

    async def _count_pull(self, consumer: Consumer) -> None:
        """Count the pull for the rate limit of the route pull. Raise a refusal (429) above it."""
        if throttling.is_limited("pull"):
            count = partial(throttling.seconds_to_wait, "pull", consumer)
            if (wait := await self.waiters.run(count)) is not None:
                raise exceptions.throttled(wait)


def find_held(given: HeldBody | OutcomeBody) -> Held | None:
    """Return job id and lease token of an item of a body, or None if its ID is no id of a job."""
    try:
        return Held(ids.decode(given["ID"]), _parse_token(given["LeaseToken"]))
    except ValueError:
        return None


def _parse_token(lease_token: str) -> UUID:
    """Return the lease token in a text, or NO_LEASE for any other text.

    `_make_token` does not get a long text, because its cache would keep it.
    """
    return _make_token(lease_token) if len(lease_token) <= LONGEST_TOKEN else NO_LEASE


@lru_cache(1_000)
def _make_token(lease_token: str) -> UUID:
    """Return a text as UUID, or NO_LEASE for any other text.

    Results are cached, because all jobs of a claim have the same lease token.
    """
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
    settlement = OUTCOMES[given["Outcome"]](held, given)
    throttle, is_of_key = given.get("ThrottleSeconds") or 0.0, bool(given.get("ThrottleKey"))
    return AckItem(given["ID"], settlement, throttle, is_of_key)


def _deliver(held: Held, given: OutcomeBody) -> Settlement:
    try:
        return outcomes.deliver(held, encoded(given.get("Result")))
    except ValueError as error:
        raise exceptions.bad_body(str(error).rstrip(".")) from error


def _error_of(given: OutcomeBody) -> str:
    text = ": ".join(filter(None, (given.get("Reason"), given.get("Error"))))
    return text and clean(text)


def _release(held: Held, given: OutcomeBody) -> Settlement:
    # A client that gives a reason has run the job: its tokens of rate limits stay spent.
    error = _error_of(given) or None
    return outcomes.release(held, after=_delay_of(given), started=bool(error) or None, error=error)


def _delay_of(given: OutcomeBody) -> timedelta | None:
    delay = given.get("DelaySeconds")
    return None if delay is None else timedelta(seconds=min(delay, LONGEST_DELAY))


OUTCOMES: Final[Mapping[JobOutcome, Callable[[Held, OutcomeBody], Settlement]]] = {
    JobOutcome.DELIVERED: _deliver,
    JobOutcome.DEAD: lambda held, given: outcomes.reject(held, _error_of(given) or NO_REASON),
    JobOutcome.RETRY: lambda held, given: outcomes.retry(
        held, _error_of(given) or NO_ERROR, after=_delay_of(given)
    ),
    JobOutcome.RELEASE: _release,
}
