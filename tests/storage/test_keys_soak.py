"""Everything at once on a few keys: never two jobs of a key in flight, in order, none forgotten.

`PULLJOBS_TEST_JOBS=20000` is the full size.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

import pytest
from django.db import transaction

from pulljobs import operating, pulling
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.models import ArchivedJob, Consumer, Job, Lease
from pulljobs.publishing import publish
from pulljobs.pulling import Puller
from pulljobs.states import State
from tests.factories import USING
from tests.keyed import exclusive, stuck, take
from tests.sessions import Thread, query, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

JOBS = int(os.environ.get("PULLJOBS_TEST_JOBS", "200"))
CLAIMERS = 20 if JOBS > 1_000 else 6
PUBLISHERS = 4 if JOBS > 1_000 else 2
KEYS = 10
LEASE = timedelta(seconds=0.5)

# What the promise says, for PostgreSQL to hold every single write against. A job before the one
# that is claimed may be passed while another transaction has it locked (then it has an xmax), and
# by the job that held the key before; the function is STABLE, so that it sees what the claim saw.
WATCH = """
CREATE UNIQUE INDEX watched_key ON pulljobs_job (consumer_id, key) WHERE state = 'INFLIGHT';
CREATE FUNCTION watched_order() RETURNS trigger LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF EXISTS (
        SELECT FROM pulljobs_job
        WHERE consumer_id = NEW.consumer_id AND key = NEW.key AND id < NEW.id
            AND state = 'QUEUED' AND xmax = 0
            AND (available_at IS NULL OR available_at < NEW.first_claimed_at)
    ) AND NOT EXISTS (
        SELECT FROM pulljobs_exclusive_key
        WHERE consumer_id = NEW.consumer_id AND key = NEW.key AND holder = NEW.id
    ) THEN
        RAISE 'job %% overtakes one of its key', NEW.id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER watched_order AFTER UPDATE ON pulljobs_job FOR EACH ROW
WHEN (OLD.state = 'QUEUED' AND NEW.state = 'INFLIGHT' AND NEW.deliveries = 1)
EXECUTE FUNCTION watched_order();
"""
UNWATCH = "DROP INDEX watched_key; DROP FUNCTION watched_order CASCADE"


@pytest.fixture
def watched() -> Iterator[None]:
    query(WATCH)
    try:
        yield
    finally:
        query(UNWATCH)


class Chaos:
    """Threads that publish, claim, settle, kill, redrive and reap until all jobs have ended."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.left = JOBS
        self.deadline = time.monotonic() + 300 + JOBS / 10

    def run(self) -> None:
        roles = [self.operate, self.revive_and_take, self.reap, *[self.publish] * PUBLISHERS]
        roles += [self.claimer() for _claimer in range(CLAIMERS)]
        threads = [Thread(partial(self.repeat, role)) for role in roles]
        for thread in threads:
            thread.join(max(self.deadline - time.monotonic(), 0))
            thread.result()

    def repeat(self, role: Callable[[], None]) -> None:
        while self.left > 0 or Job.objects.exclude(state=State.DEAD).exists():
            assert time.monotonic() < self.deadline, "keys stand still"
            role()

    def publish(self) -> None:
        if self.left <= 0:
            time.sleep(0.01)
            return
        with transaction.atomic(USING):
            for _message in range(random.randint(1, 4)):
                publish(self.consumer.channel.name, b"x", key=str(random.randrange(KEYS)))
                self.left -= 1
            time.sleep(random.choice([0, 0.001, 0.03]))

    def claimer(self) -> Callable[[], None]:
        puller = Puller(USING, self.consumer)

        def claim() -> None:
            taken, jobs, *_rest = puller.claim(random.randint(1, 6), lease_duration=LEASE)
            if taken is None:
                time.sleep(0.002)
            else:
                self.settle([Held(job.id, taken.lease_token) for job, _message in jobs])

        return claim

    def settle(self, held: list[Held]) -> None:
        chance = random.random()
        if chance < 0.02:  # a crash
            return
        now = timedelta()
        outcome_of: dict[int, Callable[[Held], Settlement]] = {
            0: lambda each: outcomes.retry(each, "again", after=now),
            1: lambda each: outcomes.retry(each, "later", after=timedelta(milliseconds=20)),
            2: lambda each: outcomes.reject(each, "bad"),
            3: outcomes.release,
        }
        pulling.finish(
            [outcome_of.get(random.randrange(20), outcomes.deliver)(job) for job in held]
        )

    def operate(self) -> None:
        live = self.some()
        operating.kill([id for id, state in live if state != State.DEAD][:1], by="chaos")
        operating.redrive([id for id, state in live if state == State.DEAD])
        time.sleep(0.01)

    def some(self) -> list[tuple[int, str]]:
        """Return up to three random jobs with their states, or none once all are published."""
        rows = Job.objects.values_list("id", "state").order_by("?")
        return list(rows[:3]) if self.left > 0 else []

    def revive_and_take(self) -> None:
        for id, state in self.some():
            if state != State.INFLIGHT and isinstance(held := take(self.consumer, id, state), Held):
                self.settle([held])
        time.sleep(0.01)

    def reap(self) -> None:
        pulling.reap()
        time.sleep(0.05)


def no_lease() -> bool:
    """Reap, and return True if no lease is left."""
    pulling.reap()
    return not Lease.objects.exists()


@pytest.mark.parametrize("hold", [True, False])
def test_keys_under_everything_at_once(watched: None, hold: bool) -> None:
    """Each job is delivered at most once, in the order of its key, and no key is left held.

    The test never sweeps, because no process crashes while it frees a key.
    """
    consumer = exclusive(
        hold_key_on_retry=hold, max_retries=99, max_deliveries=999, protocol_lease_duration=LEASE
    )
    chaos = Chaos(consumer)
    chaos.run()
    assert stuck() == []
    wait_until(no_lease)
    dead = set(Job.objects.values_list("id", flat=True))
    delivered = list(
        ArchivedJob.objects.filter(state=State.DELIVERED).values_list("job_id", flat=True)
    )
    assert len(delivered) == len(set(delivered))
    assert len(dead) + len(delivered) >= JOBS
    assert not query("SELECT key FROM pulljobs_exclusive_key WHERE holder IS NOT NULL")
