"""POST ack: outcomes of jobs, each by itself, and perhaps the next pull with it."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from rest_framework.exceptions import Throttled

from pulljobs import emission, pulling
from pulljobs.api import exceptions, pull_bodies, throttling
from pulljobs.api.leases.lease_view import LeaseView
from pulljobs.api.leases.long_poll.pending import Answer, Asked, Why
from pulljobs.api.leases.pull import pull
from pulljobs.api.pull_bodies import Word
from pulljobs.conf import settings
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.models import Consumer
from pulljobs.states import Event
from pulljobs.storage import listen, protocol


class Status(StrEnum):
    OK = "ok"
    LEASE_LOST = "lease_lost"
    NOT_FOUND = "not_found"
    REFUSED = "refused"
    """The database would not take it; no text that came through `clean` is known to do that."""


class Acked(NamedTuple):
    answer: dict[str, Any]
    settled: bool
    """All of it."""
    asked: Asked | None
    wait: float | None = None
    """Seconds until it may pull again, for that is counted with the pulls of its own."""


class AckView(LeaseView[Acked]):
    largest_body = 2 * 1024 * 1024

    def named(self, body: bytes) -> list[Held]:
        words = pull_bodies.words(pull_bodies.fields(body))
        return [word.settlement.held for word in words if word.settlement]

    def begin(self, consumer: Consumer, body: bytes) -> Acked:
        given = pull_bodies.fields(body)
        words, asked = pull_bodies.words(given), pull_bodies.asked_beside(given)
        statuses = settle(consumer, words)
        told = [
            {"ID": word.id, "Status": status} for word, status in zip(words, statuses, strict=True)
        ]
        settled = set(statuses) <= {Status.OK}
        wait = throttling.seconds_to_wait("pull", consumer) if asked and settled else None
        return Acked({"Results": told}, settled, asked, wait)

    async def finish(self, consumer: Consumer, begun: Acked) -> dict[str, Any]:
        answer, settled, asked, wait = begun
        if asked is None:
            return answer
        if not settled:
            return answer | pull_bodies.pulled(asked, Answer(Why.ACK_FAILED))
        if wait is not None:
            return answer | pull_bodies.refused(asked, Throttled(wait))
        return answer | await self._pulled(consumer, asked)

    async def _pulled(self, consumer: Consumer, asked: Asked) -> dict[str, Any]:
        """What was settled is told, whatever becomes of the pull."""
        try:
            return await pull(self, consumer, asked)
        except Exception as error:
            refusal = exceptions.refusal_of(error)
            if refusal is None:
                raise
            return pull_bodies.refused(asked, refusal)


def settle(consumer: Consumer, words: Sequence[Word]) -> list[Status]:
    """In their order. What one word settles, a later one about the same job finds settled."""
    using = settings().DATABASE
    named = [word.settlement.held.job_id for word in words if word.settlement]
    theirs = protocol.jobs_of(using, consumer.pk, named)
    statuses = [Status.NOT_FOUND] * len(words)
    open = {
        place: word.settlement
        for place, word in enumerate(words)
        if word.settlement and word.settlement.held.job_id in theirs
    }
    while open:
        first = {one.held.job_id: place for place, one in reversed(open.items())}
        batch = [(place, open.pop(place)) for place in first.values()]
        for (place, _), status in zip(batch, _finish(consumer, [s for _, s in batch]), strict=True):
            statuses[place] = status
    return statuses


def _finish(consumer: Consumer, settlements: list[Settlement]) -> list[Status]:
    """A job once."""
    finished = pulling.finish(settlements, emission.paths_of(consumer, settlements))
    if any(one.event is Event.RETRY and one.held.job_id in finished.states for one in settlements):
        # Who waits has to learn when it falls due.
        listen.wake_on_commit(settings().DATABASE, [consumer.pk])
    return [
        Status.OK
        if one.held.job_id in finished.states
        else Status.REFUSED
        if one.held.job_id in finished.refused
        else Status.LEASE_LOST
        for one in settlements
    ]
