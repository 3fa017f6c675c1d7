"""Push deliveries without a worker, one after the other."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from pulljobs.claimed_jobs import Grant
from pulljobs.conf import Settings
from pulljobs.engine import encodings
from pulljobs.engine.outcomes import Held
from pulljobs.errors import Retry
from pulljobs.handlers import ClaimedJob, Handler
from pulljobs.models import Channel, Consumer
from pulljobs.storage.rows import HeldJob, StoredMessage
from pulljobs.webhooks.delivery import PushSender
from pulljobs.webhooks.requests import Endpoint, endpoint_of

LIMITS = Settings(PUSH_ALLOWED_NETWORKS=["127.0.0.1/32"], PUSH_TIMEOUT=timedelta(seconds=60))
JOB_ID = 911855447974085410
TOKEN = "the-token-of-the-consumer"


def consumer_at(url: str, **fields: Any) -> Consumer:
    consumer = Consumer(
        channel=Channel(name="orders"), name="invoicing", type="push", callback_url=url, **fields
    )
    consumer.set_token(TOKEN)
    return consumer


def job_of(payload: bytes = b'{"order": 1}', **fields: Any) -> ClaimedJob:
    row = HeldJob(id=JOB_ID, message_id=1, priority=7, retry_count=1, deliveries=2)
    message = StoredMessage(
        id=1,
        payload=payload,
        content_type=fields.pop("content_type", "application/json"),
        given_headers=fields.pop("headers", {}),
        published=encodings.encode_timestamp(datetime.now(UTC)),
        client_message_id=fields.pop("client_message_id", "order-1"),
        key=None,
    )
    grant = Grant(
        handler=Handler(channel="orders", consumer="invoicing", function=lambda job: None),
        lease_duration=timedelta(seconds=30),
        claimed_at=0.0,
        renew=lambda job: True,
        stopping=lambda: False,
    )
    return ClaimedJob(row, message, Held(JOB_ID, UUID(int=1)), grant)


def send(consumer: Consumer, *jobs: ClaimedJob, **limits: Any) -> list[Retry | None]:
    """Deliver jobs, by default `job_of()`. Return for each its Retry, or None if delivered.

    `limits` are settings that replace those of LIMITS.
    """

    async def send_all() -> list[Retry | None]:
        sender, endpoint = PushSender(replace(LIMITS, **limits)), endpoint_of(consumer)
        try:
            return [await _delivered(sender, endpoint, job) for job in jobs or (job_of(),)]
        finally:
            await sender.close()

    return asyncio.run(send_all())


async def _delivered(sender: PushSender, endpoint: Endpoint, job: ClaimedJob) -> Retry | None:
    try:
        await sender.send(endpoint, job)
    except Retry as retry:
        return retry
    return None


def refusal(consumer: Consumer, job: ClaimedJob | None = None, **limits: Any) -> Retry:
    [retry] = send(consumer, job or job_of(), **limits)
    assert retry is not None, "delivered"
    return retry
