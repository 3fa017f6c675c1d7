"""Route pull: a consumer claims jobs, at once or, as a long poll, as soon as some are available."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any, Final

from rest_framework.exceptions import APIException

from pulljobs import ids, pulling
from pulljobs.api import exceptions
from pulljobs.api.bodies import render_payload, render_stored_time, render_time
from pulljobs.api.leases.bodies import PullBody, PulledBody, PulledJobBody, PullStatusBody
from pulljobs.api.leases.lease_view import LeaseView, holds_thread
from pulljobs.api.leases.long_poll.pending import (
    PendingPull,
    PullAnswer,
    PullReason,
    PullRequest,
    lease_duration_of,
)
from pulljobs.api.leases.long_poll.waiters import Waiters
from pulljobs.api.reading import read_body
from pulljobs.conf import settings
from pulljobs.models import Consumer
from pulljobs.storage.rows import HeldJob, StoredMessage, Taken

LARGEST_BYTES: Final = 2**31 - 1
"""Largest MaxBytes, because the parameter of the statement is a 32-bit integer."""


class PullView(LeaseView[PullRequest, PullRequest]):
    def parse(self, consumer: Consumer, body: bytes) -> PullRequest:
        return to_request(read_body(PullBody, body))

    @classmethod
    def do(cls, consumer: Consumer, asked: PullRequest) -> PullRequest:
        return asked

    @classmethod
    def do_together(cls, asked: Sequence[tuple[Consumer, PullRequest]]) -> list[PullRequest]:
        return [request for _consumer, request in asked]

    async def finish(self, consumer: Consumer, done: PullRequest) -> PulledBody:
        return await pull(self, consumer, done)


def to_request(given: PullBody) -> PullRequest:
    """Return the parameters in the body of a pull, with defaults for absent ones."""
    timeout, no_wait = given.get("IncrementalTimeout"), given.get("NoWait")
    max_bytes = given.get("MaxBytes")
    return PullRequest(
        given.get("Batch") or 1,
        0.0 if no_wait else given.get("Expires") or 0.0,
        min(max_bytes, LARGEST_BYTES) if max_bytes else None,
        given.get("RequestID") or None,
        timedelta(seconds=timeout) if timeout else None,
    )


async def pull(view: LeaseView[Any, Any], consumer: Consumer, asked: PullRequest) -> PulledBody:
    """Claim jobs for a request, which may wait for them, and return the body of the answer."""
    if consumer.type != Consumer.Type.PULL:
        raise exceptions.push_consumer()
    pending = PendingPull(consumer, asked)
    answer = await find_claimed(view.waiters, pending)
    if answer is None:
        blocks_thread = pending.waits and holds_thread(view.request)
        with long_poll_threads.hold() if blocks_thread else nullcontext():
            answer = await wait_for(view.waiters, pending)
    return render_pulled(asked, answer, lease_duration_of(pending))


async def find_claimed(waiters: Waiters, pending: PendingPull) -> PullAnswer | None:
    """Return the answer from the claim of an earlier pull with this RequestID, or None.

    It has the jobs that the claim still holds. A repeated pull thus does not join the queue.
    """
    request_id = pending.asked.request_id
    if request_id is None:
        return None
    using, consumer_id = settings().DATABASE, pending.consumer.pk
    claim = await waiters.run(partial(pulling.claimed_before, using, consumer_id, request_id))
    if claim is None:
        return None
    return PullAnswer(pending.reason_if_empty if claim.is_spent else PullReason.OK, claim)


async def wait_for(waiters: Waiters, pending: PendingPull) -> PullAnswer:
    """Put a pull into its queue and return the answer.

    If the client disconnects before the answer is sent, its jobs are released.
    """
    waiters.join(pending)
    try:
        answer = await asyncio.wrap_future(pending.future)
        await asyncio.sleep(0)  # A disconnect that the server knows of is delivered here.
    except asyncio.CancelledError:
        waiters.abandon(pending)
        raise
    request = asyncio.current_task()
    if request is not None and answer.claim is not None:
        # Middleware runs before the answer is sent.
        request.add_done_callback(
            lambda task: waiters.abandon(pending) if task.cancelled() else None
        )
    return answer


def render_pulled(
    asked: PullRequest, answer: PullAnswer, lease_duration: timedelta = timedelta()
) -> PulledBody:
    """Return the body of the answer to a pull. `lease_duration` is that of the jobs in it."""
    claim = answer.claim
    jobs = claim.jobs if claim is not None and claim.taken is not None else []
    status: PullStatusBody = {
        "Code": answer.reason.code,
        "Reason": answer.reason.reason,
        "PendingMessages": max(asked.batch - len(jobs), 0),
        "PendingBytes": _pending_bytes(asked.max_bytes, jobs),
    }
    if answer.retry_after is not None:
        status["RetryAfterSeconds"] = answer.retry_after.total_seconds()
    return {
        "Result": _render_jobs(jobs, claim.taken, lease_duration) if claim and claim.taken else [],
        "Status": status,
    }


def _pending_bytes(max_bytes: int | None, jobs: Sequence[tuple[HeldJob, StoredMessage]]) -> int:
    """Return how many of the MaxBytes of a pull its jobs left unused. Without MaxBytes it is 0."""
    return max(max_bytes - sum(message.size for _job, message in jobs), 0) if max_bytes else 0


def render_refused(asked: PullRequest, refusal: APIException) -> PulledBody:
    """Return the body for a refused pull that is a part of an ack, which itself has succeeded."""
    status: PullStatusBody = {
        "Code": refusal.status_code,
        "Reason": str(refusal.get_codes()),
        "PendingMessages": asked.batch,
        "PendingBytes": asked.max_bytes or 0,
    }
    if (seconds := getattr(refusal, "wait", None)) is not None:
        status["RetryAfterSeconds"] = seconds
    return {"Result": [], "Status": status}


def _render_jobs(
    jobs: list[tuple[HeldJob, StoredMessage]], taken: Taken, lease_duration: timedelta
) -> list[PulledJobBody]:
    lease_token, expires_at = str(taken.lease_token), render_time(taken.leased_until)
    seconds = lease_duration.total_seconds()
    return [_render_job(job, message, lease_token, expires_at, seconds) for job, message in jobs]


def _render_job(
    job: HeldJob, message: StoredMessage, lease_token: str, expires_at: str, seconds: float
) -> PulledJobBody:
    payload, encoding = render_payload(message.payload)
    return {
        "ID": ids.encode(job.id),
        "Priority": job.priority,
        "RetryCount": job.retry_count,
        "Deliveries": job.deliveries,
        "Key": message.key,
        "LeaseToken": lease_token,
        "LeaseExpiresAt": expires_at,
        "LeaseSeconds": seconds,
        "Message": {
            "MessageID": message.client_message_id or ids.encode(job.message_id),
            "PayloadEncoding": encoding,
            "Payload": payload,
            "ContentType": message.content_type,
            "Headers": message.headers,
            "PublishedAt": render_stored_time(message.published),
        },
    }


class LongPollThreads:
    """Counter of the threads that long polls hold, up to PULLJOBS['MAX_LONG_POLL_THREADS']."""

    def __init__(self) -> None:
        self._count, self._lock = 0, threading.Lock()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Count a thread while the block runs. Raise a refusal (429) if the limit is reached."""
        limit = settings().MAX_LONG_POLL_THREADS
        with self._lock:
            if self._count >= limit:
                raise exceptions.too_many_threads(limit)
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1


long_poll_threads = LongPollThreads()
