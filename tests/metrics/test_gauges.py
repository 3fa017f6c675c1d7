"""Gauges show what the tables hold, at a cost that is bounded for any backlog."""

import re
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib.resources import files
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.models.functions import Now
from prometheus_client import Metric

from pulljobs import operating, pulling
from pulljobs.metrics import gauge_samples, gauges
from pulljobs.metrics.families import Sample
from pulljobs.metrics.gauges import GaugeReading, Gauges
from pulljobs.models import Channel, Job, Lease, Node
from pulljobs.publishing import publish_many
from pulljobs.states import State
from pulljobs.storage import backlog, nodes
from tests.api.caller import Subscription, job_in, subscription
from tests.factories import USING, ConsumerFactory
from tests.sessions import PATIENCE_SECONDS, pass_time, query, session, wait_until

Via = Lease.Via
pytestmark = pytest.mark.django_db(transaction=True)
PLACE = ("orders", "billing")


@pytest.fixture
def billing(transactional_db: None) -> Subscription:
    operating.maintain()
    return subscription(*PLACE)


def read_gauges() -> dict[tuple[str, tuple[str, ...]], float]:
    (reading := GaugeReading()).read_parts()
    return {(name, labels): value for name, labels, value in reading.samples()}


@pytest.mark.owner  # The test makes partitions.
def test_they_are_what_the_tables_say(billing: Subscription) -> None:
    """Gauges of jobs by state, their age and the partitions agree with the tables."""
    for state, count in zip(State, (5, 2, 4, 3), strict=True):
        for _ in range(count):
            job_in(state, billing)
    publish_many("orders", [b"later"])
    Job.objects.filter(state="QUEUED").update(available_at=Now() - timedelta(minutes=5))
    newest = Job.objects.filter(state="QUEUED").latest("id").pk
    Job.objects.filter(id=newest).update(available_at=Now() + timedelta(hours=1))
    now = read_gauges()
    in_states = {state: Job.objects.filter(state=state).count() for state in ("QUEUED", "DEAD")}
    assert now["queued_job_count", PLACE] == in_states["QUEUED"] == 6
    assert now["dead_job_count", PLACE] == in_states["DEAD"] == 3
    kinds = {
        kind: now["pulljobs_jobs", (*PLACE, kind)] for kind in ("ready", "delayed", "in_flight")
    }
    assert kinds == {"ready": 5, "delayed": 1, "in_flight": 2}
    assert 300 <= now["pulljobs_oldest_ready_seconds", PLACE] < 600
    assert now["pulljobs_paused", PLACE] == 0
    assert now["pulljobs_partitions_ahead", ("pulljobs_message",)] == 7
    assert now["pulljobs_default_partition_rows", ("pulljobs_archived_job",)] == 0
    assert all(now["pulljobs_read_ok", (part,)] for part in gauge_samples.PARTS)


def test_pauses_workers_and_circuits(billing: Subscription) -> None:
    """Gauges show a pause, the serving workers, their highest circuit level and silent nodes."""
    operating.pause(billing.consumer.channel, nodes.clock(USING) + timedelta(hours=1))
    for level, silent in ((2, timedelta(0)), (3, timedelta(0)), (5, timedelta(minutes=5))):
        _node(
            {"serves": ["orders/billing"], "circuits": {"orders/billing": {"level": level}}}, silent
        )
    now = read_gauges()
    assert now["pulljobs_paused", PLACE] == 1
    assert now["pulljobs_serving", PLACE] == 2
    assert now["pulljobs_circuit_level", PLACE] == 3
    assert now["pulljobs_nodes", ("worker", "alive")] == 2
    assert now["pulljobs_nodes", ("worker", "silent")] == 1


@pytest.mark.parametrize(
    ("via", "serving"), [(Via.PULL, 1), (Via.POST, 1), (Via.SPARK, 1), (Via.WORKER, 0)]
)
def test_who_holds_jobs_serves_but_for_a_worker_that_no_longer_says_so(
    billing: Subscription, via: Via, serving: int
) -> None:
    """Clients and streams count as serving while they hold jobs, workers only by their reports."""
    publish_many("orders", [b""] * 2)
    assert read_gauges()["pulljobs_serving", PLACE] == 0
    for _ in range(2):
        assert pulling.Puller(USING, billing.consumer, via).claim(1).taken
    assert read_gauges()["pulljobs_serving", PLACE] == serving
    pass_time()
    assert read_gauges()["pulljobs_serving", PLACE] == 0


def _node(report: dict[str, Any], silent: timedelta) -> None:
    made = Node(name="host:1", started_at=Now(), heartbeat_at=Now() - silent, report=report)
    made.save()


def test_a_long_backlog_costs_no_more_than_its_cap(
    billing: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gauge counts jobs up to a cap. Above it the planner estimates, and reads no more rows."""
    monkeypatch.setattr(backlog, "CAPS", (50,))
    reads = []
    for count in (200, 1800):
        publish_many("orders", [b""] * count)
        query("ANALYZE pulljobs_job")
        before = _rows_read()
        with transaction.atomic(using=USING):
            queued = read_gauges()["queued_job_count", PLACE]
            reads.append(_rows_read() - before)
    assert abs(queued - 2000) < 200
    assert 50 <= reads[1] <= reads[0] + 50


def test_the_planner_is_asked_of_so_many_consumers_at_the_most(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Estimates are made for a few of the backlogs above the cap. The others show the cap."""
    monkeypatch.setattr(backlog, "CAPS", (5,))
    monkeypatch.setattr(gauge_samples, "ESTIMATED", 2)
    monkeypatch.setattr(backlog, "estimate_queued", lambda _using, _consumer_id: 1000)
    for _ in range(4):
        ConsumerFactory.create()
    for channel in Channel.objects.all():
        publish_many(channel.name, [b""] * 10)
    queued = [
        value for (name, _place), value in read_gauges().items() if name == "queued_job_count"
    ]
    assert sorted(queued) == [5, 5, 1000, 1000]


def _rows_read() -> int:
    """Return how many rows of the job table this transaction has read."""
    [(read,)] = query(
        "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables"
        " WHERE relname = 'pulljobs_job'"
    )
    return int(read)


DEAD = """
INSERT INTO pulljobs_job
    (id, consumer_id, message_id, retry_count, deliveries, priority, state, reason)
SELECT consumer_id * 10000 + n, consumer_id, n, 0, 1, 0, 'DEAD', 'rejected'
FROM unnest(%s::bigint[]) AS consumer_id, generate_series(1, %s) AS n
"""


def test_dead_jobs_are_counted_beyond_the_alert_s_threshold_however_many_consumers_have_them(
    db: None,
) -> None:
    [threshold] = re.findall(
        r"dead_job_count\) > (\d+)", (files("pulljobs.metrics") / "alerts.yml").read_text()
    )
    made = ConsumerFactory.create_batch(22)
    count = int(threshold) + 100
    query(DEAD, [[consumer.pk for consumer in made], count])
    dead_counts = [
        value for (name, _place), value in read_gauges().items() if name == "dead_job_count"
    ]
    assert dead_counts == [count] * len(made)


def test_what_is_not_read_in_time_is_left_out(
    billing: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gauges, "PATIENCE", timedelta(seconds=3))
    with session() as other:
        other.execute("LOCK TABLE pulljobs_node")
        now = read_gauges()
    assert now["pulljobs_read_ok", ("workers",)] == 0
    assert now["pulljobs_read_ok", ("consumers",)] == 1
    assert ("queued_job_count", PLACE) in now
    assert ("pulljobs_serving", PLACE) not in now


def test_without_the_database_they_say_so(
    billing: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the database, the only gauges are those that say that nothing was read."""
    connection = connections[USING]
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "NAME", "nowhere")
    try:
        now = read_gauges()
    finally:
        connection.close()
    assert not any(now["pulljobs_read_ok", (part,)] for part in gauge_samples.PARTS)
    assert {name for name, _labels in now} == {"pulljobs_read_ok", "pulljobs_read_seconds"}


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Replace the database by a server that accepts connections and never answers."""
    connection = connections[USING]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        there = {**connection.get_connection_params(), "host": host, "port": port}
        monkeypatch.setattr(type(connection), "get_connection_params", lambda _connection: there)
        yield listener


@pytest.fixture
def reading() -> Callable[[], threading.Thread]:
    """Return a function that finds the thread reading gauges, ignoring those of earlier tests."""
    before = set(threading.enumerate())

    def only() -> threading.Thread:
        [thread] = [
            thread for thread in set(threading.enumerate()) - before if thread.name == "gauges"
        ]
        return thread

    return only


def test_a_database_that_does_not_answer_delays_no_scrape_and_occupies_at_most_one_thread(
    billing: Subscription,
    silent: socket.socket,
    reading: Callable[[], threading.Thread],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gauges, "WAIT", 0.1)
    collector = Gauges()
    for _ in range(3):
        families = {family.name: family.samples for family in collector.collect()}
        assert {sample.value for sample in families["pulljobs_read_ok"]} == {0}
        assert not families["queued_job_count"]
    going_on = reading()
    silent.accept()[0].close()
    going_on.join(PATIENCE_SECONDS)
    assert not going_on.is_alive()


def test_parts_read_before_the_database_stopped_answering_are_exported(
    billing: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gauges, "WAIT", 0.0)
    going_on = threading.Event()

    def last(_using: str) -> Iterator[Sample]:
        assert going_on.wait(PATIENCE_SECONDS)
        yield "pulljobs_oldest_snapshot_seconds", (), 1.0

    parts = {"consumers": gauge_samples.PARTS["consumers"], "snapshots": last}
    monkeypatch.setattr(gauge_samples, "find_parts", lambda: parts)
    collector = Gauges()
    wait_until(lambda: _read_ok(collector) == {"consumers": 1, "snapshots": 0})
    going_on.set()
    wait_until(lambda: _read_ok(collector) == {"consumers": 1, "snapshots": 1})


def test_parts_that_are_always_late_are_exported_from_the_last_reading(
    billing: Subscription,
    reading: Callable[[], threading.Thread],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Gauges that a reading has not reached yet keep their last values, if those are recent."""
    monkeypatch.setattr(gauges, "WAIT", 0.0)
    monkeypatch.setattr(gauges, "FRESH", 0.0)
    turns = threading.Semaphore(0)

    def last(_using: str) -> Iterator[Sample]:
        assert turns.acquire(timeout=PATIENCE_SECONDS)
        yield "pulljobs_oldest_snapshot_seconds", (), 1.0

    parts = {"consumers": gauge_samples.PARTS["consumers"], "snapshots": last}
    monkeypatch.setattr(gauge_samples, "find_parts", lambda: parts)
    collector = Gauges()
    assert _read_ok(collector)["snapshots"] == 0
    first = reading()
    turns.release()
    first.join(PATIENCE_SECONDS)
    publish_many("orders", [b""])
    wait_until(lambda: _value(collector) == 1)
    assert _read_ok(collector) == {"consumers": 1, "snapshots": 1}
    monkeypatch.setattr(gauges, "KEPT", 0.0)
    assert _read_ok(collector) == {"consumers": 1, "snapshots": 0}
    second = reading()
    turns.release()
    second.join(PATIENCE_SECONDS)


def _read_ok(collector: Gauges) -> dict[str, float]:
    read_ok: Metric = next(
        metric for metric in collector.collect() if metric.name == "pulljobs_read_ok"
    )
    return {sample.labels["part"]: sample.value for sample in read_ok.samples}


def test_they_are_read_again_only_when_they_are_some_seconds_old(
    billing: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scrapes within a few seconds share one reading of the gauges."""
    monkeypatch.setattr(gauges, "FRESH", 600.0)
    collector = Gauges()
    first = _value(collector)
    publish_many("orders", [b""])
    assert _value(collector) == first == 0
    collector.forget()
    assert _value(collector) == 1


def _value(collector: Gauges) -> float:
    queued: Metric = next(
        metric for metric in collector.collect() if metric.name == "queued_job_count"
    )
    return queued.samples[0].value
