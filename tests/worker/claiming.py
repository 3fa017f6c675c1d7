"""Claimed jobs for tests of parts of the worker, without its loops."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from pulljobs.claimed_jobs import Grant
from pulljobs.conf import Settings, settings
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.engine.run_times import RunTime
from pulljobs.handlers import AckPolicy, ClaimedJob, Handler
from pulljobs.models import Consumer
from pulljobs.pulling import Puller
from pulljobs.storage.rows import HeldJob, StoredMessage
from pulljobs.worker.circuits import ConsumerCircuit
from pulljobs.worker.flusher import Flusher
from pulljobs.worker.in_flight import InFlightJobs
from pulljobs.worker.renewer import Renewer, renew_after, renew_now
from pulljobs.worker.result_buffer import ResultBuffer
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


def claimed_job(
    handler: Handler,
    row: HeldJob,
    message: StoredMessage,
    held: Held,
    *,
    lease_duration: timedelta = timedelta(seconds=30),
    claimed_at: float | None = None,
    start_by: float = float("inf"),
    run_time: RunTime | None = None,
    consumer_circuit: ConsumerCircuit | None = None,
) -> ClaimedJob:
    grant = Grant(
        handler=handler,
        lease_duration=lease_duration,
        claimed_at=time.monotonic() if claimed_at is None else claimed_at,
        renew_after=renew_after(lease_duration),
        renew=renew_now,
        stopping=lambda: False,
        start_by=start_by,
        run_time=run_time or RunTime(),
    )
    if consumer_circuit is not None:
        grant.circuit, grant.ticket = consumer_circuit, consumer_circuit.ticket
    return ClaimedJob(row, message, held, grant)


def claim_of(
    function: Callable[[ClaimedJob], Any],
    count: int = 1,
    *,
    consumer: Consumer | None = None,
    consumer_circuit: ConsumerCircuit | None = None,
    **how: Any,
) -> list[ClaimedJob]:
    """Publish `count` jobs, and return them as claimed under one lease, to be run by `function`."""
    consumer = consumer or ConsumerFactory.create(retry_strategy="constant:60")
    published(consumer, count)
    claim = Puller(USING, consumer).claim(count)
    assert claim.taken
    handler = handler_of(consumer, function, **how)
    lease_token, lease_duration = claim.taken.lease_token, consumer.lease_duration
    return [
        claimed_job(
            handler,
            row,
            message,
            Held(row.id, lease_token),
            lease_duration=lease_duration,
            consumer_circuit=consumer_circuit,
        )
        for row, message in claim.jobs
    ]


def unclaimed(
    number: int = 1,
    *,
    lease_duration: float = 30.0,
    claimed_at: float | None = None,
    start_by: float = float("inf"),
    run_time: RunTime | None = None,
    payload: bytes = b"",
) -> ClaimedJob:
    """Return a job as if it were claimed, without any row in the database."""
    handler = Handler(channel="c", consumer="c", function=lambda job: None)
    row = HeldJob(number, number, 0, 0, 1)
    message = StoredMessage(number, payload, "", {}, bytes(8), None)
    held = Held(number, UUID(int=1))
    return claimed_job(
        handler,
        row,
        message,
        held,
        lease_duration=timedelta(seconds=lease_duration),
        claimed_at=claimed_at,
        start_by=start_by,
        run_time=run_time,
    )


class FlusherBench:
    """Flusher with jobs in flight, which collects the jobs that it queues again or gives up."""

    def __init__(self, jobs: list[ClaimedJob], **changed: Any) -> None:
        self.buffer = ResultBuffer()
        self.results = self.buffer.results
        self.in_flight = InFlightJobs(1000, limit_bytes=10**9)
        self.in_flight.add(jobs)
        self.renewer = Renewer(self.in_flight, self.buffer.runs)
        self.back: list[ClaimedJob] = []
        self.given_up: list[ClaimedJob] = []
        self.flusher = Flusher(
            self.buffer,
            limits(**changed),
            self.in_flight,
            on_flushed=lambda jobs, back: self.back.extend(back),
            on_given_up=self.given_up.append,
        )

    def write(self, job: ClaimedJob, outcome: Settlement | None) -> None:
        self.results.append((job, outcome))
        while self.results:
            self.flusher.tick()
