"""Consumers whose keys take turns, for tests."""

from collections import Counter
from typing import Any

from pulljobs.engine.outcomes import Held
from pulljobs.models import Consumer, FlowKey, Job
from pulljobs.pulling import Puller
from tests.factories import USING, ConsumerFactory, published
from tests.keyed import claim
from tests.sessions import query


def fair(**options: Any) -> Consumer:
    consumer: Consumer = ConsumerFactory.create(fair_by_key=True, **options)
    return consumer


def limited(number: int = 1, **options: Any) -> Consumer:
    consumer: Consumer = ConsumerFactory.create(max_in_flight_per_key=number, **options)
    return consumer


def queue(consumer: Consumer, number: int, key: str | None, **options: Any) -> list[int]:
    """Publish `number` jobs of a key and return their ids."""
    return published(consumer, number, key=key, **options)


def keys_of(held: list[Held]) -> Counter[str | None]:
    ids = [job.job_id for job in held]
    return Counter(Job.objects.filter(id__in=ids).values_list("turn_key", flat=True))


def claimed_keys(consumer: Consumer, wanted: int = 10, **options: Any) -> Counter[str | None]:
    """Claim once and return the number of jobs by key."""
    return keys_of(claim(consumer, wanted, **options))


def known_keys() -> set[str]:
    return set(FlowKey.objects.values_list("key", flat=True))


def puller(consumer: Consumer) -> Puller:
    return Puller(USING, consumer)


def rated(rate: str, **options: Any) -> Consumer:
    consumer: Consumer = ConsumerFactory.create(rate=rate, rate_per_key=True, **options)
    return consumer


MOST_IN_FLIGHT = """
WITH ended AS (
    SELECT message.key, archived.claimed_at AS begun_at, archived.settled_at AS ended_at
    FROM pulljobs_archived_job AS archived
    JOIN pulljobs_message AS message ON message.id = archived.message_id
    WHERE archived.consumer_id = %s
    UNION ALL
    SELECT message.key, attempt.claimed_at, attempt.ended_at
    FROM pulljobs_attempt AS attempt
    JOIN pulljobs_archived_job AS archived ON archived.job_id = attempt.job_id
    JOIN pulljobs_message AS message ON message.id = archived.message_id
    WHERE archived.consumer_id = %s AND attempt.event IN ('release', 'retry')
)
SELECT max(running)
FROM (
    SELECT sum(change) OVER (PARTITION BY key ORDER BY at, change) AS running
    FROM (
        SELECT key, begun_at AS at, 1 AS change FROM ended
        UNION ALL
        SELECT key, ended_at, -1 FROM ended
    ) AS changes
) AS sums
"""


def most_in_flight(consumer: Consumer) -> int:
    """Return the highest number of jobs of one key that were in flight at once.

    It is computed from the archive and the attempts, so all jobs must be settled.
    """
    [(most,)] = query(MOST_IN_FLIGHT, [consumer.pk, consumer.pk])
    return int(most)
