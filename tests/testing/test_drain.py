"""`drain` does in the test's transaction what a worker does in its own."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test import TestCase, TransactionTestCase

from pulljobs.errors import ConfigurationError, Discard, Retry
from pulljobs.handlers import AckPolicy, ClaimedJob, handler
from pulljobs.models import ArchivedJob, Consumer, FlowKey, Job
from pulljobs.publishing import publish
from pulljobs.pulling import Puller
from pulljobs.states import Reason, State
from pulljobs.storage import throttles
from pulljobs.testing import drain
from tests.factories import USING, ConsumerFactory


class Handled:
    """Tests that run in a TestCase and in a TransactionTestCase, with the same results."""

    consumer: Consumer

    def setUp(self) -> None:
        self.consumer = ConsumerFactory.create(retry_strategy="constant:60", max_retries=2)

    def handle(self, function: Any, **options: Any) -> None:
        handler(channel=self.consumer.channel.name, consumer=self.consumer.name, **options)(
            function
        )

    def publish(self, payload: Any = b"", **options: Any) -> int:
        return publish(self.consumer.channel.name, payload, **options).job_ids[0]

    def test_ready_jobs_run_and_are_settled(self) -> None:
        self.handle(lambda job: {"got": job.json()})
        job = self.publish({"order": 7})
        [ran] = drain()
        assert ran.payload == b'{"order": 7}'
        assert ran.consumer == self.consumer.name
        assert (ran.job.id, ran.job.state) == (job, State.DELIVERED)
        assert ran.job.result == {"got": {"order": 7}}
        assert ArchivedJob.objects.get(job_id=job).deliveries == 1
        assert drain() == []

    def test_a_rate_delays_no_test(self) -> None:
        self.consumer.rate = "1/d"
        self.consumer.save()
        self.handle(lambda job: None)
        for _job in range(3):
            self.publish()
        assert len(drain()) == 3

    def test_a_rate_of_each_key_delays_no_test(self) -> None:
        self.consumer.rate, self.consumer.rate_per_key = "1/d", True
        self.consumer.save()
        self.handle(lambda job: None)
        for key in ("a", "b") * 3:
            self.publish(key=key)
        assert len(drain()) == 6
        self.publish(key="a")
        assert len(drain()) == 1

    def test_a_key_without_tokens_goes_on_after_its_throttle(self) -> None:
        self.consumer.rate, self.consumer.rate_per_key = "1/d", True
        self.consumer.save()
        self.handle(lambda job: None)
        for _job in range(2):
            self.publish(key="a")
        assert len(Puller(USING, self.consumer).claim(2).jobs) == 1, "the token is taken"
        throttles.throttle_keys(USING, {(self.consumer.pk, "a"): 3600.0})
        assert drain() == []
        FlowKey.objects.update(throttled_until=Now())
        assert len(drain()) == 1

    def test_a_throttle_that_a_handler_asks_for_delays_no_test(self) -> None:
        def heed(job: ClaimedJob) -> None:
            if job.retry_count == 0:
                raise Retry(after=timedelta(hours=1), throttle=True)

        self.handle(heed)
        for _job in range(2):
            self.publish()
        assert [ran.job.state for ran in drain()] == ["QUEUED", "QUEUED"]
        assert [ran.job.state for ran in drain(delayed=True)] == ["DELIVERED", "DELIVERED"]

    def test_a_failure_is_returned_and_waits_for_its_delay(self) -> None:
        self.handle(lambda job: 1 / 0)
        job = self.publish()
        [ran] = drain()
        assert isinstance(ran.exception, ZeroDivisionError)
        assert ran.job.state == State.QUEUED
        assert "ZeroDivisionError" in (ran.job.error or "")
        assert Job.objects.get(id=job).retry_count == 1

    def test_delayed_jobs_run_on_demand_until_they_are_dead(self) -> None:
        self.handle(lambda job: 1 / 0)
        self.publish(delay=timedelta(days=3))
        assert drain() == []
        assert [ran.job.state for ran in drain(delayed=True)] == ["QUEUED", "QUEUED", "DEAD"]
        assert Job.objects.get().reason == Reason.RETRIES_EXHAUSTED

    def test_on_giving_up_is_called_once_and_its_error_changes_nothing(self) -> None:
        calls: list[bytes] = []

        def give_up(job: ClaimedJob) -> None:
            calls.append(job.payload)
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 / 0")

        def work(job: ClaimedJob) -> None:
            raise Discard("no use") if job.text == "bad" else Retry

        self.handle(work, on_giving_up=give_up)
        self.publish(b"bad")
        job = self.publish(b"x")
        assert len(drain()) == 2
        assert calls == []
        assert drain(delayed=True)[-1].job.state == State.DEAD
        assert calls == [b"x"]
        assert Job.objects.get(id=job).reason == Reason.RETRIES_EXHAUSTED

    def test_on_giving_up_is_called_for_a_job_that_is_nacked_with_its_effects(self) -> None:
        calls: list[str] = []
        self.handle(
            ClaimedJob.nack, transactional=True, on_giving_up=lambda job: calls.append(job.text)
        )
        self.publish("x")
        assert [ran.job.state for ran in drain(delayed=True)] == ["QUEUED", "QUEUED", "DEAD"]
        assert calls == ["x"]

    def test_database_error_of_a_handler_leaves_the_transaction_usable(self) -> None:
        def divide(job: ClaimedJob) -> None:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 / 0")

        self.handle(divide)
        self.publish()
        [ran] = drain()
        assert "DataError" in (ran.job.error or "")
        assert Job.objects.get().state == State.QUEUED

    def test_transactional_effects_go_with_the_settlement(self) -> None:
        def work(job: ClaimedJob) -> None:
            Group.objects.create(name=job.text)
            if job.text == "bad":
                raise Retry

        self.handle(work, transactional=True)
        self.publish("good")
        self.publish("bad")
        assert [ran.job.state for ran in drain()] == [State.DELIVERED, State.QUEUED]
        assert Group.objects.get().name == "good"

    def test_the_policy_ack_first_settles_before_the_run(self) -> None:
        self.handle(lambda job: 1 / 0, ack_policy=AckPolicy.ACK_FIRST)
        self.publish()
        [ran] = drain()
        assert ran.job.state == State.DELIVERED

    def test_jobs_made_by_handlers_run_too(self) -> None:
        following = ConsumerFactory.create()
        self.handle(lambda job: publish(following.channel.name, job.payload) and None)
        handler(channel=following.channel.name, consumer=following.name)(lambda job: None)
        self.publish(b"x")
        assert [ran.channel for ran in drain()] == [
            self.consumer.channel.name,
            following.channel.name,
        ]

    def test_one_consumer_is_drained_alone(self) -> None:
        other = ConsumerFactory.create(channel=self.consumer.channel)
        self.handle(lambda job: None)
        handler(channel=other.channel.name, consumer=other.name)(lambda job: None)
        self.publish()
        assert [ran.consumer for ran in drain(consumer=other.name)] == [other.name]
        assert [ran.consumer for ran in drain(self.consumer.channel.name)] == [self.consumer.name]

    def test_endless_work_is_an_error(self) -> None:
        self.handle(lambda job: publish(self.consumer.channel.name, b"") and None)
        self.publish()
        with pytest.raises(AssertionError, match="still ready after 3 rounds"):
            drain(rounds=3)

    def test_work_that_ends_with_the_last_round_is_not_endless(self) -> None:
        def longer(job: ClaimedJob) -> None:
            if len(job.text) < 3:
                publish(self.consumer.channel.name, job.text + "x")

        self.handle(longer)
        self.publish("x")
        assert [ran.payload for ran in drain(rounds=2)] == [b"x", b"xx", b"xxx"]

    def test_retries_are_ready_if_delayed_jobs_run_at_once(self) -> None:
        self.handle(lambda job: 1 / 0)
        self.publish()
        with pytest.raises(AssertionError, match="still ready after 1 rounds"):
            drain(delayed=True, rounds=1)
        job = Job.objects.get()
        assert (job.state, job.retry_count, job.deliveries) == (State.QUEUED, 2, 2)
        assert [ran.job.state for ran in drain(delayed=True, rounds=1)] == [State.DEAD]

    def test_queued_jobs_of_one_key_take_as_many_rounds_as_they_need(self) -> None:
        self.consumer = ConsumerFactory.create(exclusive_keys=True)
        self.handle(lambda job: None)
        for text in "abc":
            self.publish(text, key="k")
        assert [ran.payload for ran in drain(rounds=1)] == [b"a", b"b", b"c"]

    def test_an_unknown_channel_is_an_error(self) -> None:
        self.handle(lambda job: None)
        with pytest.raises(ConfigurationError, match="No handler serves channel 'nowhere'"):
            drain("nowhere")


class InOneTransaction(Handled, TestCase):
    def test_jobs_published_on_commit_are_ready_after_the_callbacks(self) -> None:
        self.handle(lambda job: None)
        with self.captureOnCommitCallbacks(execute=True):
            transaction.on_commit(self.publish)
            assert drain() == []
        assert len(drain()) == 1

    def test_handlers_own_callbacks_are_captured(self) -> None:
        calls: list[str] = []
        self.handle(lambda job: transaction.on_commit(lambda: calls.append(job.text)))
        self.publish("x")
        with self.captureOnCommitCallbacks(execute=True):
            drain()
            assert calls == []
        assert calls == ["x"]


class InRealTransactions(Handled, TransactionTestCase):
    def test_jobs_published_on_commit_are_ready_after_it(self) -> None:
        self.handle(lambda job: None)
        with transaction.atomic(USING):
            transaction.on_commit(self.publish)
        assert len(drain()) == 1
