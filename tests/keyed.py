"""Consumers with exclusive keys, for tests."""

from typing import Any

from pulljobs import pulling
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.models import Consumer, ExclusiveKey
from pulljobs.pulling import Puller
from pulljobs.storage.rows import NotYet, Refusal, Taken
from tests.factories import USING, ConsumerFactory, published
from tests.sessions import Session, query, run

STUCK = """
SELECT job.id
FROM pulljobs_job AS job
LEFT JOIN pulljobs_exclusive_key AS row ON row.consumer_id = job.consumer_id AND row.key = job.key
WHERE job.state = 'QUEUED'
    AND job.available_at IS NULL
    AND NOT EXISTS (SELECT FROM pulljobs_job WHERE id = row.holder AND reason IS NULL)
    AND NOT EXISTS (
        SELECT FROM pulljobs_job AS other
        WHERE other.consumer_id = job.consumer_id
            AND other.key = job.key
            AND other.state = 'QUEUED'
            AND other.available_at IS NOT NULL
    )
"""
"""Query of blocked jobs whose key is free, so that nothing would ever make them claimable."""


def exclusive(**options: Any) -> Consumer:
    consumer: Consumer = ConsumerFactory.create(exclusive_keys=True, **options)
    return consumer


def queued(consumer: Consumer, keys: str, **options: Any) -> list[int]:
    """Publish a job for each letter, which is its key. Return the ids."""
    return [published(consumer, 1, key=key, **options)[0] for key in keys]


def claim(consumer: Consumer, wanted: int = 10, **options: Any) -> list[Held]:
    """Claim once. Return the ids of the jobs with their lease token, in the order of the claim."""
    taken, jobs, *_rest = Puller(USING, consumer).claim(wanted, **options)
    return [Held(job.id, taken.lease_token) for job, _message in jobs] if taken else []


def ids(held: list[Held]) -> list[int]:
    return [job.job_id for job in held]


def take(consumer: Consumer, job_id: int, source: str = "QUEUED") -> Held | Refusal | NotYet | None:
    taken = pulling.take(consumer, job_id, source)  # type: ignore[arg-type]  # a State's value
    return Held(job_id, taken.lease_token) if isinstance(taken, Taken) else taken


def deliver(*held: Held) -> None:
    assert len(pulling.finish([outcomes.deliver(job) for job in held]).states) == len(held)


def blocked() -> set[int]:
    rows = query("SELECT id FROM pulljobs_job WHERE state = 'QUEUED' AND available_at IS NULL")
    return {id for (id,) in rows}


def stuck() -> list[int]:
    return [id for (id,) in query(STUCK)]


def lock_key(other: Session, consumer: Consumer, key: str) -> None:
    """Lock the key of a consumer in another session."""
    ExclusiveKey.objects.get_or_create(consumer_id=consumer.pk, key=key)
    run(other, "lock_keys", {"consumer_ids": [consumer.pk], "keys": [key]})
