"""Promises of a stream, by the calls that Spark makes. Its crashes are in test_stream_crashes."""

from datetime import timedelta
from threading import Thread
from types import SimpleNamespace

import pytest
from django.utils import timezone
from psycopg import OperationalError

from pulljobs import batches as batches_of_jobs
from pulljobs.engine import members, outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.errors import ConfigurationError, LakeError, StreamTaken
from pulljobs.models import ArchivedJob, Consumer, Job, Lease, Node
from pulljobs.states import Reason, State
from pulljobs.storage import jobs, nodes
from pyspark_pulljobs import (
    DefaultSource,
    batches,
    link,
    ownership,
    settling,
    streaming,
    waiting,
)
from tests.factories import USING, ConsumerFactory, claimed, published
from tests.lake.streams import Source, batch, job_ids, options, source, states
from tests.sessions import PATIENCE_SECONDS, query, wait_until
from tests.workflows.conftest import fill, sweep

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def consumer() -> Consumer:
    return ConsumerFactory.create()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the heartbeats of streams, and how long they wait for jobs and for a silent owner."""
    monkeypatch.setattr(ownership, "BEAT", timedelta(seconds=0.1))
    monkeypatch.setattr(ownership, "PATIENCE", timedelta(seconds=0.6))
    monkeypatch.setattr(ownership, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr("pyspark_pulljobs.heartbeat.BEAT", timedelta(seconds=0.1))
    monkeypatch.setattr("pyspark_pulljobs.heartbeat.PATIENCE", timedelta(seconds=0.6))
    monkeypatch.setattr(waiting, "POLL", timedelta(seconds=0.1))


def test_a_batch_is_acked_when_spark_asks_for_the_next(consumer: Consumer) -> None:
    made = published(consumer, 15)
    with source(consumer) as stream:
        assert job_ids(stream.run()) == made[:10]
        assert states() == {State.INFLIGHT: 10, State.QUEUED: 5}
        assert stream.at["backlog"] == 5
        assert job_ids(stream.run()) == made[10:]
        wait_until(lambda: states() == {State.INFLIGHT: 5})
        assert stream.run() == []
        assert states() == {}
        first = stream.at
        later = published(consumer, 2)
        stream.run()
        assert first.items() >= {"seq": 2, "claimed": 15, "backlog": 0, "redelivered": 0}.items()
        assert stream.at.items() >= {"seq": 3, "claimed": 17, "acked": 15, "lost": 0}.items()
        stream.run()
    node = Node.objects.get()
    assert node.kind == Node.Kind.SPARK
    assert set(ArchivedJob.objects.values_list("job_id", "state", "node_id")) == {
        (job, State.DELIVERED, node.pk) for job in [*made, *later]
    }
    assert not Lease.objects.exists()
    assert (batch(1).acked, batch(1).lost, batch(1).state) == (10, 0, "acked")


def test_of_many_jobs_a_batch_is_claimed_ahead_while_batches_are_quick(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While batches are quick, the next one is claimed already. After a slow batch it is not."""
    monkeypatch.setattr("pyspark_pulljobs.stream.AHEAD_SECONDS", 600.0)
    made = published(consumer, 45)
    with source(consumer) as stream:
        assert job_ids(stream.run()) + job_ids(stream.run()) == made[:20]
        wait_until(lambda: states() == {State.INFLIGHT: 20, State.QUEUED: 15})
        assert job_ids(stream.run()) == made[20:30]
        monkeypatch.setattr("pyspark_pulljobs.stream.AHEAD_SECONDS", 0.0)
        assert job_ids(stream.run()) == made[30:40]
        stream.reader.stream.ack(4)
        assert states() == {State.QUEUED: 5}


def test_rows_are_the_jobs_with_their_messages(consumer: Consumer) -> None:
    [job] = published(consumer, payload=b"\0\xff", key="k", headers={"a": "é"}, priority=3)
    with source(consumer) as stream:
        [row] = stream.run()
    archived = Job.objects.get()
    assert row["published_at"] <= timezone.now()
    assert row | {"published_at": None} == {
        "job_id": job,
        "lease_token": str(archived.lease_token),
        "message_id": archived.message_id,
        "payload": b"\0\xff",
        "content_type": "application/octet-stream",
        "headers": [("a", "é")],
        "key": "k",
        "priority": 3,
        "client_message_id": None,
        "published_at": None,
        "retry_count": 0,
        "deliveries": 1,
    }


def test_a_batch_is_renewed_while_it_runs(consumer: Consumer) -> None:
    published(consumer, 3)
    with source(consumer, lease=6) as stream:
        stream.run()
        end = Lease.objects.get().leased_until
        wait_until(lambda: Lease.objects.get().leased_until > end + timedelta(seconds=1))
        jobs.reap(USING, 10)
        stream.run()
    assert batch(1).acked == 3


def test_what_another_took_after_the_lease_is_not_acked(consumer: Consumer) -> None:
    """An ack settles no job that was expired, claimed again or not, and counts it as lost."""
    made = published(consumer, 4)
    with source(consumer) as stream:
        stream.run()
        query("UPDATE pulljobs_lease SET leased_until = now() - interval '1 s', hard_end = now()")
        jobs.reap(USING, 10)
        taken = claimed(consumer, 3)
        stream.reader.stream.ack(1)
        assert (batch(1).acked, batch(1).lost) == (0, 4)
        assert {claim.job_id for claim in taken} | {Job.objects.get(state="QUEUED").pk} == set(made)
        assert states() == {State.INFLIGHT: 3, State.QUEUED: 1}
        stream.run()
        assert stream.at.items() >= {"claimed": 5, "redelivered": 1, "lost": 4}.items()


def test_members_of_a_batch_are_delivered_with_other_jobs(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ack delivers the members of batches, which its statement for other jobs leaves out."""
    monkeypatch.setattr(members, "_until", float("-inf"))
    published(consumer, 2)
    made = fill(consumer, 3)
    with source(consumer) as stream:
        assert len(stream.run()) == 5
        stream.reader.stream.ack(1)
        fill(consumer, 1)
        assert len(stream.run()) == 1  # another statement delivers a single member
        stream.reader.stream.ack(2)
    assert [(batch(seq).acked, batch(seq).lost) for seq in (1, 2)] == [(5, 0), (1, 0)]
    sweep()
    assert batches_of_jobs.get(made.id).live == 0
    assert members.choose("deliver") == "deliver_members"


def test_single_jobs_fail_without_their_batch(consumer: Consumer) -> None:
    bad, later, good = published(consumer, 3)
    with source(consumer) as stream:
        rows = {row["job_id"]: (row["job_id"], row["lease_token"]) for row in stream.run()}
        dsn = options(consumer)["dsn"]
        assert settling.reject(dsn, [rows[bad]], "no \0such customer") == {bad: State.DEAD}
        hour = timedelta(hours=1)
        assert settling.retry(dsn, [rows[later]], "busy", after=hour) == {later: State.QUEUED}
        assert settling.retry(dsn, [rows[bad]], "again") == {}
        assert stream.run() == []
    assert (batch(1).acked, batch(1).failed, batch(1).lost) == (1, 2, 0)
    dead = ArchivedJob.objects.get(job_id=bad)
    assert (dead.reason, dead.error) == (Reason.REJECTED, "no such customer")
    assert ArchivedJob.objects.get(job_id=good).state == State.DELIVERED
    assert Job.objects.get(pk=later).retry_count == 1


def test_a_stream_has_one_owner(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "PATIENCE", timedelta(seconds=5))
    monkeypatch.setattr("pyspark_pulljobs.heartbeat.PATIENCE", timedelta(seconds=5))
    published(consumer, 3)
    with source(consumer) as stream:
        stream.run()
        with pytest.raises(StreamTaken, match="is run by"), source(consumer) as second:
            second.run()
        assert stream.run() == []
    assert batch(1).acked == 3


def test_an_owner_that_was_replaced_can_neither_claim_nor_ack(consumer: Consumer) -> None:
    published(consumer, 3)
    with source(consumer) as stream:
        end = stream.plan()
        query("UPDATE pulljobs_stream SET owner = gen_random_uuid(), owned_until = now()")
        stream.at = end
        with pytest.raises(StreamTaken):
            stream.plan()
    assert states() == {State.INFLIGHT: 3}


def test_bounds_in_flight_hold_for_streams(consumer: Consumer) -> None:
    Consumer.objects.filter(pk=consumer.pk).update(max_in_flight=7)
    made = published(consumer, 10)
    with source(consumer) as stream:
        elsewhere = claimed_by_worker(consumer, 2)
        assert len(stream.run()) == 5
        assert len(stream.run()) == 3
    assert len(made) == 10
    assert len(elsewhere) == 2


def claimed_by_worker(consumer: Consumer, wanted: int) -> list[int]:
    from pulljobs.pulling import Puller

    return [job.id for job, _message in Puller(USING, consumer).claim(wanted).jobs]


def test_keys_run_one_at_a_time_in_streams(consumer: Consumer) -> None:
    Consumer.objects.filter(pk=consumer.pk).update(exclusive_keys=True)
    first, second, third = (published(consumer, 2, key=key) for key in "abc")
    with source(consumer) as stream:
        assert job_ids(stream.run()) == [first[0], second[0], third[0]]
        assert job_ids(stream.run()) == [first[1], second[1], third[1]]
        assert stream.run() == []


def test_nothing_is_claimed_in_a_pause_and_acks_go_on(consumer: Consumer) -> None:
    published(consumer, 2)
    with source(consumer, maxRowsPerBatch=1) as stream:
        stream.run()
        Consumer.objects.update(paused_until=timezone.now() + timedelta(hours=1))
        assert stream.run() == []
    assert batch(1).acked == 1
    assert states() == {State.QUEUED: 1}


@pytest.mark.parametrize("exclusive", [False, True])
def test_available_now_ends_with_what_was_there(consumer: Consumer, exclusive: bool) -> None:
    Consumer.objects.filter(pk=consumer.pk).update(exclusive_keys=exclusive)
    made = published(consumer, 15, key="k" if exclusive else None)
    with source(consumer) as stream:
        stream.reader.prepareForTriggerAvailableNow()
        there = nodes.clock(USING)
        wait_until(lambda: nodes.clock(USING) - there > timedelta(milliseconds=5))
        late = published(consumer, 2, key="other" if exclusive else None)
        received = []
        while rows := stream.run():
            received += job_ids(rows)
        with source(consumer) as next_query:  # at once: the first query released it
            assert set(job_ids(next_query.run())) <= set(late)
    assert received == made


def test_a_stream_continues_with_other_options_and_repeats_a_batch_whose_checkpoint_is_lost(
    consumer: Consumer,
) -> None:
    made = published(consumer, 14)
    with source(consumer) as stream:
        assert job_ids(stream.run()) == made[:10]
        reached = stream.at
    restarted = Source(options(consumer, maxRowsPerBatch=3, partitions=2, lease=60), reached)
    assert job_ids(restarted.run()) == made[10:13]
    restarted.reader.stream._links.drop()
    with source(consumer) as without_checkpoint:
        received: list[int] = []
        while len(received) < 4:
            received += job_ids(without_checkpoint.run())
        assert without_checkpoint.run() == []
    assert received == made[10:]
    assert states() == {}


def test_a_publish_wakes_a_stream_that_waits(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "POLL", timedelta(minutes=10))
    with source(consumer) as stream:
        ends: list[int] = []
        thread = Thread(target=lambda: ends.append(stream.plan()["seq"]))
        thread.start()
        wait_until(lambda: query("SELECT 1 FROM pulljobs_pull_waiter") != [])
        published(consumer)
        thread.join(PATIENCE_SECONDS)
        assert ends == [1]


def test_a_stream_outlives_an_outage_of_the_database(consumer: Consumer) -> None:
    made = published(consumer, 12)
    with source(consumer) as stream:
        first = job_ids(stream.run())
        query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'pulljobs on Spark' AND datname = current_database()"
        )
        assert first + job_ids(stream.run()) == made
        stream.run()
    assert (batch(1).acked, batch(2).acked) == (10, 2)


def test_an_outage_begins_with_its_first_failure(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time that a call took before its first error does not count towards `outage`."""
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(link, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    failures = [OperationalError("the server is away")] * 2

    def work(_link: link.Link) -> str:
        if failures:
            sleep(60)
            raise failures.pop()
        return "done"

    with source(consumer, outage=100) as stream:
        links = stream.reader.stream._links
        assert links.run(work) == "done"
        failures += [OperationalError("the server is away")] * 3
        with pytest.raises(LakeError, match="gave up: the server is away"):
            links.run(work)


def test_what_a_stopped_query_holds_is_given_back_and_run_again(consumer: Consumer) -> None:
    made = published(consumer, 4)
    with source(consumer) as stream:
        start, end = stream.at, stream.plan()
        assert stream.reader.stream.release_all() == 4
        assert states() == {State.QUEUED: 4}
        assert set(Job.objects.values_list("deliveries", "retry_count")) == {(0, 0)}
        [other] = claimed(consumer, 1)
    with source(consumer) as again:
        again.at = start
        assert set(job_ids(again.rows(end))) == {*made} - {other.job_id}
        again.at = end
        again.run()
    assert (batch(1).acked, batch(1).lost) == (3, 1)


def test_a_settled_job_of_a_batch_is_not_lost(consumer: Consumer) -> None:
    [job] = published(consumer, 1)
    with source(consumer) as stream:
        [row] = stream.run()
        held = Held(job, row["lease_token"])
        settling.settle(options(consumer)["dsn"], [outcomes.deliver(held, '{"a": 1}')])
        stream.run()
    assert (batch(1).acked, batch(1).lost) == (1, 0)
    assert ArchivedJob.objects.get().result == {"a": 1}


def test_a_result_that_is_too_deep_for_the_server_fails_its_job_alone(consumer: Consumer) -> None:
    published(consumer, 3)
    deep = "[" * 100_000 + "]" * 100_000
    with source(consumer) as stream:
        first, second, third = (Held(row["job_id"], row["lease_token"]) for row in stream.run())
        settlements = [outcomes.deliver(held) for held in (first, third)]
        settlements.insert(1, outcomes.deliver(second, deep))
        settled = settling.settle(options(consumer)["dsn"], settlements)
    assert settled == {
        first.job_id: State.DELIVERED,
        second.job_id: State.QUEUED,
        third.job_id: State.DELIVERED,
    }
    assert str(Job.objects.get().error).startswith("Its outcome can't be written: stack depth")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"consumer": "missing"}, "no consumer 'missing'"),
        ({"channel": ""}, '"channel" is missing'),
        ({"dsn": "host=x password=secret"}, "must hold no password"),
        ({"maxRows": "5"}, "did you mean 'maxRowsPerBatch'"),
        ({"startingOffsets": "latest"}, "'startingoffsets' is no option of a stream: remove it"),
        ({"lease": "soon"}, "whole number"),
        ({"lease": "0"}, "\"lease\" must be a whole number from 1 to 2147483647, not '0'"),
        ({"maxLease": str(10**14)}, "whole number from 1 to 2147483647"),
        ({"reader": "jdbc"}, "adbc or copy"),
        ({"stream": "s\0"}, 'Option "stream" has a NUL character'),
        ({"channel": "c" * 200, "consumer": "d" * 200}, '"stream" must have at most 255'),
    ],
)
def test_wrong_options_are_reported_in_one_line(
    consumer: Consumer, given: dict[str, str], error: str
) -> None:
    with pytest.raises(ConfigurationError, match=error) as raised:
        streaming.reader({**options(consumer), **given}, batches.SCHEMA).initialOffset()
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("given", [{"lease": "0"}, {"startingOffsets": "latest"}, {"channel": ""}])
def test_wrong_options_are_reported_when_the_stream_is_loaded(
    consumer: Consumer, given: dict[str, str]
) -> None:
    """Wrong options raise ConfigurationError in `load()`, which asks the source for its columns."""
    source_options = options(consumer)
    assert DefaultSource(source_options).schema() == batches.SCHEMA
    with pytest.raises(ConfigurationError):
        DefaultSource({**source_options, **given}).schema()
