"""Groups of consumers that share limits: exact over all members."""

from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest
from django.db.models import ProtectedError

from pulljobs import pulling
from pulljobs.engine import outcomes
from pulljobs.models import Consumer, FlowBucket, LimitGroup
from pulljobs.pulling import Puller
from pulljobs.states import State
from pulljobs.storage import listen, statements
from pulljobs.storage.listen import Listener
from pulljobs.storage.rows import NotYet, Refusal
from pulljobs.storage.sessions import behind_pooler
from tests.factories import USING, ConsumerFactory, published
from tests.sessions import Thread, at_once, blocked_by, query, run, session, wait_until
from tests.storage.test_rates import LONG, MINUTE, fill, held

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)


def group_of(**limits: object) -> LimitGroup:
    group: LimitGroup = LimitGroup.objects.create(name="stripe-api", **limits)
    return group


def members(group: LimitGroup, count: int = 2, jobs: int = 10, **fields: object) -> list[Consumer]:
    made = [ConsumerFactory.create(limit_group=group, **fields) for _member in range(count)]
    for consumer in made:
        published(consumer, jobs)
    return made


def claimed(consumer: Consumer, wanted: int = 10) -> int:
    return len(Puller(USING, consumer).claim(wanted).jobs)


class TestSharedRate:
    def test_members_share_one_bucket(self) -> None:
        first, second = members(group_of(rate="60/h", rate_burst=5))
        assert claimed(first, 3) == 3
        claim = Puller(USING, second).claim(10)
        assert (len(claim.jobs), claim.refusal) == (2, Refusal.RATE_LIMITED)
        assert claim.limited_for is not None
        assert MINUTE - LONG < claim.limited_for <= MINUTE
        assert claimed(first) == 0
        fill(MINUTE)
        assert (claimed(second), claimed(first)) == (1, 0)

    def test_a_member_obeys_its_own_rate_as_well(self) -> None:
        group = group_of(rate="60/h", rate_burst=5)
        [slow] = members(group, 1, rate="60/h", rate_burst=2)
        [fast] = members(group, 1)
        assert (claimed(slow), claimed(fast), claimed(slow)) == (2, 3, 0)

    def test_a_claim_that_one_bucket_refuses_takes_nothing_out_of_the_other(self) -> None:
        [consumer] = members(group_of(rate="60/h", rate_burst=5), 1, 0, rate="60/h", rate_burst=2)
        published(consumer, 1, cost=2)
        published(consumer, 1, cost=2)
        assert claimed(consumer) == 1
        levels = dict(FlowBucket.objects.values_list("group_id", "tokens"))
        assert levels == {
            0: pytest.approx(0, abs=0.1),
            consumer.limit_group_id: pytest.approx(3, abs=0.1),
        }

    def test_a_released_job_gives_its_token_to_both_buckets(self) -> None:
        [consumer] = members(group_of(rate="60/h", rate_burst=5), 1, rate="60/h", rate_burst=5)
        mine = held(Puller(USING, consumer).claim(5))
        pulling.finish([outcomes.release(job) for job in mine[:2]])
        assert {round(row.tokens) for row in FlowBucket.objects.all()} == {2}

    def test_a_job_that_was_claimed_outside_of_the_group_gives_it_no_token(self) -> None:
        group = group_of(rate="60/h", rate_burst=5)
        [inside] = members(group, 1)
        assert claimed(inside) == 5
        outside = ConsumerFactory.create()
        published(outside, 3)
        mine = held(Puller(USING, outside).claim(3))
        outside.limit_group = group
        outside.save()
        pulling.finish([outcomes.release(job) for job in mine])
        assert claimed(inside) == 0

    def test_a_job_is_taken_by_its_id_only_with_a_token_of_the_group(self) -> None:
        first, second = members(group_of(rate="60/h", rate_burst=1), 2, 0)
        [job] = published(second)
        published(first)
        assert claimed(first) == 1
        assert isinstance(pulling.take(second, job, State.QUEUED), NotYet)

    @committed
    def test_claims_of_all_members_at_once_take_no_token_twice(self) -> None:
        consumers = members(group_of(rate="1/d", rate_burst=7), 4)
        assert sum(at_once(4, lambda number: claimed(consumers[number], 3))) == 7


class TestSharedBound:
    def test_members_share_one_bound(self) -> None:
        first, second = members(group_of(max_in_flight=3))
        mine = held(Puller(USING, first).claim(2))
        claim = Puller(USING, second).claim(10)
        assert (len(claim.jobs), claim.refusal) == (1, Refusal.MAX_IN_FLIGHT)
        pulling.finish([outcomes.deliver(job) for job in mine])
        assert claimed(second) == 2

    @committed
    @pytest.mark.parametrize("outcome", [outcomes.deliver, outcomes.release])
    def test_a_job_that_ends_wakes_the_waiters_of_other_members(self, outcome: object) -> None:
        assert callable(outcome)
        if behind_pooler(USING):
            pytest.skip("LISTEN needs a connection of its own")
        first, second = members(group_of(max_in_flight=1))
        mine = held(Puller(USING, first).claim(1))
        with closing(Listener(USING)) as listener:
            listen.wait(USING, [second.pk], uuid4(), MINUTE)
            pulling.finish([outcome(job) for job in mine])
            assert listener.receive(LONG) == {second.pk}

    @committed
    def test_claims_lock_the_group_before_the_consumer(self) -> None:
        [consumer] = members(group_of(max_in_flight=5), 1)
        with session() as other:
            run(other, "lock_group", {"group_id": consumer.limit_group_id})
            claiming = Thread(lambda: claimed(consumer))
            wait_until(lambda: blocked_by(other))
            run(
                other, "lock_consumer", {"consumer_id": consumer.pk}
            )  # It holds no lock that this needs.
            other.commit()
            assert claiming.result() == 5


class TestMembership:
    @pytest.mark.parametrize("kind", [{}, {"exclusive_keys": True}, {"fair_by_key": True}])
    def test_a_puller_follows_its_consumer_into_a_group_and_out(self, kind: dict[str, Any]) -> None:
        group = group_of(rate="60/h", rate_burst=2)
        consumer = ConsumerFactory.create(**kind)
        published(consumer, 20)
        puller = Puller(USING, consumer)
        assert len(puller.claim(3).jobs) == 3
        consumer.limit_group = group
        consumer.save()
        assert len(puller.claim(3).jobs) == 2
        query("UPDATE pulljobs_limit_group SET rate_burst = 4")
        fill(2 * MINUTE)
        assert len(puller.claim(9).jobs) == 2
        consumer.limit_group = LimitGroup.objects.create(name="other", max_in_flight=8)
        consumer.save()
        assert len(puller.claim(9).jobs) == 1
        consumer.limit_group = None
        consumer.save()
        assert len(puller.claim(3).jobs) == 3
        stale = {"consumer_id": consumer.pk, "group_id": group.pk}
        assert statements.run(USING, "allowance", stale) == []  # Its lock is of no use.

    def test_a_group_without_a_rate_keeps_no_bucket(self) -> None:
        group = group_of(rate="60/h", rate_burst=2)
        [consumer] = members(group, 1)
        assert claimed(consumer) == 2
        group.rate, group.rate_burst = "", None
        group.save()
        assert not FlowBucket.objects.exists()
        assert claimed(consumer, 5) == 5

    def test_a_group_with_members_can_not_be_deleted(self) -> None:
        [consumer] = members(group_of(max_in_flight=1), 1)
        group = consumer.limit_group
        assert group is not None
        with pytest.raises(ProtectedError):
            group.delete()
