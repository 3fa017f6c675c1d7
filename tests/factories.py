"""Factories of rows for tests: the verbs bring a job to its state, as in production."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from factory.base import Factory
from factory.declarations import Sequence, SubFactory
from factory.django import DjangoModelFactory

from pulljobs.conf import settings
from pulljobs.engine import outcomes
from pulljobs.engine.claiming import plain
from pulljobs.engine.claiming.rows import Terms
from pulljobs.engine.low_water_marks import LowWaterMarks
from pulljobs.engine.outcomes import Held
from pulljobs.models import Channel, Consumer, Lease
from pulljobs.publishing import publish, publish_many
from pulljobs.states import State
from pulljobs.storage import jobs
from pulljobs.storage.rows import Claimed, Taken
from pulljobs.storage.statements import AliasSession

USING = settings().DATABASE
NO_DELAY = "constant:0"
LEASE = timedelta(seconds=30)
MAX_LEASE = timedelta(seconds=900)


class ChannelFactory(DjangoModelFactory[Channel]):
    class Meta:
        model = Channel

    name = Sequence(lambda n: f"channel-{n}")


class ConsumerFactory(DjangoModelFactory[Consumer]):
    class Meta:
        model = Consumer

    name = Sequence(lambda n: f"consumer-{n}")
    channel = SubFactory(ChannelFactory)
    lease_duration = LEASE
    retry_strategy = NO_DELAY
    retry_jitter = 0.0


@dataclass(frozen=True)
class MadeJob:
    """Job that `JobFactory` has made. `held` has the token of its current or last lease."""

    id: int
    consumer: Consumer
    held: Held


class JobFactory(Factory[MadeJob]):
    """Factory of jobs that are published, claimed and brought to `state`."""

    class Meta:
        model = MadeJob

    consumer = SubFactory(ConsumerFactory)
    state = State.QUEUED
    payload: Any = b"payload"

    @classmethod
    def _create(cls, model_class: type[MadeJob], *args: Any, **kwargs: Any) -> MadeJob:
        consumer, state = kwargs["consumer"], State(kwargs["state"])
        [job_id] = published(consumer, payload=kwargs["payload"])
        held = Held(job_id, taken(consumer, job_id))
        bring[state](held)
        return MadeJob(job_id, consumer, held)


def _stay(held: Held) -> None:
    pass


def _settle(settlement: outcomes.Settlement) -> None:
    assert jobs.finish(USING, [settlement]).states


bring = {
    State.QUEUED: lambda held: _settle(outcomes.release(held)),
    State.INFLIGHT: _stay,
    State.DELIVERED: lambda held: _settle(outcomes.deliver(held)),
    State.DEAD: lambda held: _settle(outcomes.reject(held, "bad")),
}


def published(consumer: Consumer, count: int = 1, **options: Any) -> list[int]:
    """Publish `count` messages. Return the ids of this consumer's jobs."""
    channel = consumer.channel.name
    payload = options.pop("payload", b"payload")
    if options:
        receipts = [publish(channel, payload, **options) for _ in range(count)]
    else:
        receipts = publish_many(channel, [payload] * count)
    position = list(
        Consumer.objects.filter(channel=consumer.channel, deleted_at=None)
        .order_by("id")
        .values_list("id", flat=True)
    ).index(consumer.pk)
    return [receipt.job_ids[position] for receipt in receipts]


def taken(consumer: Consumer, job_id: int, **options: Any) -> UUID:
    """Claim one queued job by its id. Return the lease token."""
    defaults: dict[str, Any] = {
        "lease_duration": consumer.lease_duration,
        "max_lease": MAX_LEASE,
        "via": Lease.Via.POST,
    }
    result = jobs.take(USING, consumer.pk, job_id, source=State.QUEUED, **{**defaults, **options})
    assert isinstance(result, Taken), result
    return result.lease_token


@dataclass
class TimedRun:
    """Begin of a run by the monotonic clock and its duration, in seconds. Both may be None."""

    begun_at: float | None
    run_seconds: float | None


def claimed(consumer: Consumer, wanted: int = 1, **options: Any) -> list[Held]:
    """Claim from the head of the queue. Return the ids of the jobs with their lease token."""
    claim = claim_from_head(consumer, wanted, **options)
    return [Held(job.id, claim.taken.lease_token) for job in claim.jobs] if claim.taken else []


def claim_from_head(consumer: Consumer, wanted: int = 1, **options: Any) -> Claimed:
    """Claim as a process does that knows no low-water mark.

    `options` are fields of `Terms`, or `entry`, the position in the claim index to begin at.
    """
    entry = options.pop("entry", LowWaterMarks().entry_above())
    terms = Terms(Lease.Via.WORKER, MAX_LEASE)._replace(**options)
    return plain.claim(AliasSession(USING), consumer.pk, wanted, terms, entry)
