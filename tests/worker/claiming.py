"""Jobs in the hands of handlers, as the worker's parts hand them around, without its loops."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from pulljobs.conf import Settings, settings
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.handlers import AckPolicy, ClaimedJob, Grant, Handler
from pulljobs.models import Consumer
from pulljobs.pulling import Puller
from pulljobs.storage.rows import HeldJob, StoredMessage
from pulljobs.worker.circuits import Breaker
from pulljobs.worker.fetcher import renew_one
from pulljobs.worker.flusher import Flusher
from pulljobs.worker.in_flight import Holdings
from pulljobs.worker.result_buffer import Outbox
from tests.factories import USING, ConsumerFactory, published


def limits(**changed: Any) -> Settings:
    return replace(settings(), **changed)


def handler_of(consumer: Consumer, function: Callable[[ClaimedJob], Any], **how: Any) -> Handler:
    return Handler(
        channel=consumer.channel.name,
        consumer=consumer.name,
        function=function,
        ack_policy=AckPolicy(how.pop("ack_policy", AckPolicy.NACK_ON_ERROR)),
        **how,
    )


def in_hand(
    handler: Handler,
    row: HeldJob,
    message: StoredMessage,
    held: Held,
    *,
    lease_duration: timedelta = timedelta(seconds=30),
    claimed_at: float | None = None,
    start_by: float = float("inf"),
    breaker: Breaker | None = None,
) -> ClaimedJob:
    grant = Grant(
        handler=handler,
        lease_duration=lease_duration,
        claimed_at=time.monotonic() if claimed_at is None else claimed_at,
        renew=renew_one,
        stopping=lambda: False,
        start_by=start_by,
    )
    if breaker is not None:
        ticket = breaker.circuit.ticket
        breaker.claimed(ticket)
        grant.circuit, grant.on_end = breaker.circuit, partial(breaker.tell, ticket)
    return ClaimedJob(row, message, held, grant)


def claim_of(
    function: Callable[[ClaimedJob], Any],
    count: int = 1,
    *,
    consumer: Consumer | None = None,
    breaker: Breaker | None = None,
    **how: Any,
) -> list[ClaimedJob]:
    """So many jobs, published and claimed under one lease for that handler."""
    consumer = consumer or ConsumerFactory.create(retry_strategy="constant:60")
    published(consumer, count)
    claim = Puller(USING, consumer).claim(count)
    assert claim.taken
    handler = handler_of(consumer, function, **how)
    token, lease = claim.taken.lease_token, consumer.lease_duration
    return [
        in_hand(handler, row, message, Held(row.id, token), lease_duration=lease, breaker=breaker)
        for row, message in claim.jobs
    ]


def unclaimed(
    number: int = 1,
    *,
    lease_duration: float = 30.0,
    claimed_at: float | None = None,
    start_by: float = float("inf"),
) -> ClaimedJob:
    """A job that no table knows."""
    handler = Handler(channel="c", consumer="c", function=lambda job: None)
    row = HeldJob(number, number, 0, 0, 1)
    message = StoredMessage(number, b"", "", {}, bytes(8), None)
    held = Held(number, UUID(int=1))
    return in_hand(
        handler,
        row,
        message,
        held,
        lease_duration=timedelta(seconds=lease_duration),
        claimed_at=claimed_at,
        start_by=start_by,
    )


class Desk:
    """A flusher with what it works on."""

    def __init__(self, jobs: list[ClaimedJob], **changed: Any) -> None:
        self.outbox = Outbox()
        self.said = self.outbox.said
        self.holdings = Holdings(1000)
        self.holdings.add(jobs)
        self.back: list[ClaimedJob] = []
        self.given_up: list[ClaimedJob] = []
        self.flusher = Flusher(
            self.outbox,
            limits(**changed),
            self.holdings,
            on_flushed=lambda jobs, back: self.back.extend(back),
            on_given_up=self.given_up.append,
        )

    def write(self, job: ClaimedJob, word: Settlement | None) -> None:
        self.said.append((job, word))
        while self.said:
            self.flusher.tick()
