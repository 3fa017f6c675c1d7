"""Costs of jobs and fixed windows: what a claim takes out of a bucket, and what comes back."""

import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections

from pulljobs import pulling
from pulljobs.engine import outcomes
from pulljobs.errors import InvalidMessage
from pulljobs.models import Consumer, Job
from pulljobs.publishing import Draft, publish, publish_many
from pulljobs.pulling import Puller
from pulljobs.states import State
from pulljobs.storage import jobs, statements
from pulljobs.storage.rows import NotYet, Refusal, Taken
from tests.factories import USING, ConsumerFactory, published
from tests.sessions import pass_time, query
from tests.storage.test_rates import fill, held, limited, tokens

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)
SLACK = timedelta(seconds=20)


def query_rows(statement: str) -> list[dict[str, Any]]:
    """Return the rows of a query by column name."""
    with connections[USING].cursor() as cursor:
        cursor.execute(statement)
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def publish_costs(consumer: Consumer, *costs: int, **options: object) -> list[int]:
    """Publish a job of each cost. Return the ids of the jobs."""
    name = consumer.channel.name
    return [publish(name, b"", cost=cost, **options).job_ids[0] for cost in costs]  # type: ignore[arg-type]  # The options are those of publish.


class TestCost:
    def test_a_claim_takes_as_many_jobs_as_their_costs_allow_and_none_overtakes(self) -> None:
        consumer = limited(burst=10)
        ids = publish_costs(consumer, 3, 4, 5, 1)
        claim = Puller(USING, consumer).claim(10)
        assert [job.id for job, _message in claim.jobs] == ids[:2]
        assert (claim.refusal, claim.more) == (Refusal.RATE_LIMITED, False)
        assert 3 <= tokens(consumer) < 3.5
        assert claim.limited_for is not None
        assert 2 * MINUTE - SLACK < claim.limited_for <= 2 * MINUTE
        assert Puller(USING, consumer).claim(10).taken is None
        fill(2 * MINUTE)
        assert [job.id for job, _m in Puller(USING, consumer).claim(10).jobs] == ids[2:3]

    def test_a_job_that_costs_more_than_the_burst_needs_a_full_bucket(self) -> None:
        consumer = limited(burst=5)
        first, _second = publish_costs(consumer, 7, 1)
        claim = Puller(USING, consumer).claim(10)
        assert [job.id for job, _message in claim.jobs] == [first]
        assert claim.limited_for is not None
        assert MINUTE - SLACK < claim.limited_for <= MINUTE

    def test_one_puller_claims_jobs_of_changing_costs_without_losing_a_token(self) -> None:
        consumer = limited(burst=40)
        publish_costs(consumer, *[5] * 4, *[1] * 10, 5, 5, 1)
        puller, taken = Puller(USING, consumer), 0
        while True:
            claim = puller.claim(6)
            taken += len(claim.jobs)
            if not (claim.jobs or claim.more):
                break
        assert taken == 4 + 10 + 2
        assert claim.refusal is Refusal.RATE_LIMITED or tokens(consumer) < 1

    @pytest.mark.parametrize("exclusive", [False, True])
    def test_a_claim_that_is_too_dear_leaves_no_trace(self, exclusive: bool) -> None:
        consumer = limited(burst=4, exclusive_keys=exclusive)
        ids = [publish_costs(consumer, 3, key=key)[0] for key in "abc"]
        puller = Puller(USING, consumer)
        assert [job.id for job, _message in puller.claim(3).jobs] == ids[:1]
        waiting = Job.objects.filter(id__in=ids[1:])
        assert {(job.state, job.deliveries, job.first_claimed_at) for job in waiting} == {
            ("QUEUED", 0, None)
        }
        fill(2 * MINUTE)
        assert [job.id for job, _message in puller.claim(3).jobs] == ids[1:2]

    def test_a_released_job_gives_its_cost_back_once(self) -> None:
        consumer = limited(burst=10)
        publish_costs(consumer, 3, 7)
        mine = held(Puller(USING, consumer).claim(2))
        for _repeat in range(2):
            pulling.finish([outcomes.release(job) for job in mine[:1]])
        assert 3 <= tokens(consumer) < 3.5
        pass_time()
        for _reaper in range(5):
            jobs.reap(USING, 10)
        assert tokens(consumer) < 3.5

    def test_a_release_gives_back_no_more_than_was_paid_before_the_burst_grew(self) -> None:
        consumer = limited(burst=2)
        publish_costs(consumer, 9, 1, 1)
        mine = held(Puller(USING, consumer).claim(1))
        consumer.rate_burst = 20
        consumer.save()
        Puller(USING, consumer).claim(5)
        pulling.finish([outcomes.release(job) for job in mine])
        assert tokens(consumer) < 1

    def test_a_job_is_taken_by_its_id_for_its_cost(self) -> None:
        consumer = limited(burst=5)
        first, second = publish_costs(consumer, 3, 4)
        assert isinstance(pulling.take(consumer, first, State.QUEUED), Taken)
        refused = pulling.take(consumer, second, State.QUEUED)
        assert isinstance(refused, NotYet)
        assert 2 * MINUTE - SLACK < refused.next_due <= 2 * MINUTE
        assert Job.objects.get(id=second).deliveries == 0

    def test_a_batch_stores_the_costs_of_its_messages(self) -> None:
        consumer = ConsumerFactory.create()
        drafts = [Draft(payload=b"", cost=3), b"", Draft(payload=b"", key="k", cost=1)]
        publish_many(consumer.channel.name, drafts)
        assert list(Job.objects.order_by("id").values_list("cost", flat=True)) == [3, None, None]

    def test_a_job_that_gets_another_message_gets_its_cost(self) -> None:
        consumer = ConsumerFactory.create(max_queued_per_key=1, key_overflow="replace")
        for cost in (2, 6):
            publish(consumer.channel.name, b"", key="k", cost=cost)
        assert Job.objects.get().cost == 6

    @pytest.mark.parametrize("cost", [0, -1, 1_000_001, 1.5, True, "2"])
    def test_a_cost_is_a_whole_number_from_one_on(self, cost: int) -> None:
        consumer = ConsumerFactory.create()
        with pytest.raises(InvalidMessage, match="cost must be a whole number from 1 to 1,000,000"):
            publish(consumer.channel.name, b"", cost=cost)


@pytest.fixture
def early() -> None:
    """Wait for the next minute if the current one is about to end."""
    [(second,)] = query("SELECT extract(second FROM clock_timestamp())::float8")
    if second > 57:
        time.sleep(60.1 - second)


@pytest.mark.usefixtures("early")
class TestWindow:
    def test_a_window_allows_its_number_and_names_its_end(self) -> None:
        consumer = limited("5/d", None, rate_window=True)
        published(consumer, 20)
        claim = Puller(USING, consumer).claim(20)
        [(left,)] = query(
            "SELECT date_bin('1 day', now(), timestamptz 'epoch') + interval '1 day' - now()"
        )
        assert (len(claim.jobs), claim.refusal) == (5, Refusal.RATE_LIMITED)
        assert claim.limited_for is not None
        assert left - SLACK < claim.limited_for <= left
        fill(MINUTE if left < timedelta(hours=23) else timedelta())
        assert Puller(USING, consumer).claim(20).taken is None

    def test_the_next_window_is_full_and_what_was_left_does_not_count(self) -> None:
        consumer = limited("5/m", None, rate_window=True)
        published(consumer, 20)
        puller = Puller(USING, consumer)
        assert len(puller.claim(3).jobs) == 3
        fill(MINUTE)
        assert len(puller.claim(20).jobs) == 5

    def test_a_changed_number_counts_at_once_and_what_was_taken_counts(self) -> None:
        consumer = limited("5/m", None, rate_window=True)
        published(consumer, 20)
        puller = Puller(USING, consumer)
        assert len(puller.claim(20).jobs) == 5
        for rate, more in (("8/m", 3), ("6/m", 0), ("9/m", 1)):
            consumer.rate = rate
            consumer.save()
            assert len(puller.claim(20).jobs) == more

    def test_a_rate_that_is_saved_alone_counts(self) -> None:
        consumer = limited("5/m", None, rate_window=True)
        published(consumer, 20)
        consumer.rate = "7/m"
        consumer.save(update_fields=["rate"])
        assert len(Puller(USING, consumer).claim(20).jobs) == 7

    def test_a_released_job_comes_back_only_into_the_window_that_it_was_claimed_in(self) -> None:
        consumer = limited("5/m", None, rate_window=True)
        published(consumer, 20)
        puller = Puller(USING, consumer)
        first, second, *_others = held(puller.claim(5))
        pulling.finish([outcomes.release(first)])
        assert len(puller.claim(20).jobs) == 1
        query("UPDATE pulljobs_lease SET claimed_at = claimed_at - interval '1 minute'")
        query("UPDATE pulljobs_flow_bucket SET charged_since = charged_since - interval '1 hour'")
        pulling.finish([outcomes.release(second)])
        assert puller.claim(20).taken is None

    def test_a_claim_that_crosses_into_the_next_window_is_paid_there(self) -> None:
        consumer = limited("5/m", None, rate_window=True)
        published(consumer, 5)
        [job, *_others] = held(Puller(USING, consumer).claim(5))
        [row] = query_rows("SELECT * FROM pulljobs_flow_bucket")
        late = {**row, "tokens": 1.0, "read_at": row["filled_at"] - MINUTE, "job_ids": [job.job_id]}
        statements.run(USING, "spend", late)
        assert tokens(consumer) == 4
