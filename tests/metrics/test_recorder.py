"""Events are counted a batch at a time, and cost nothing where metrics are switched off."""

import importlib.util
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.test import override_settings
from prometheus_client import REGISTRY, values

from pulljobs import checks, pulling
from pulljobs.engine import outcomes, telemetry
from pulljobs.engine.outcomes import Held
from pulljobs.engine.telemetry import (
    ClaimLimited,
    HandlersRan,
    JobsClaimed,
    JobsExpired,
    JobsFinished,
    JobsPublished,
)
from pulljobs.metrics import exposition, recorder
from pulljobs.metrics.families import Family, families_counted
from pulljobs.publishing import publish_many
from tests.factories import USING, ConsumerFactory, claimed, published
from tests.metrics.events import EVERY
from tests.metrics.scraping import by, parsed


@pytest.fixture
def events() -> Iterator[list[object]]:
    recorded: list[object] = []
    end = telemetry.record_with(recorded.append)
    yield recorded
    end()


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_a_batch_of_times_counts_like_each_of_them() -> None:
    """Each run time of an event counts in the bucket of its length, and a negative time as 0."""
    place = {"channel": "times", "consumer": "all"}
    recorder.record(HandlersRan("times", "all", [-1.0, 0.004, 0.005, 0.2, 7200.0]))
    counts = {end: value("pulljobs_run_seconds_bucket", **place, le=end) for end in ENDS}
    assert counts == {"0.005": 3, "0.01": 3, "0.25": 4, "3600.0": 4, "+Inf": 5}
    assert value("pulljobs_run_seconds_sum", **place) == pytest.approx(7200.209)
    recorder.record(HandlersRan("times", "all", []))
    assert value("pulljobs_run_seconds_count", **place) == 5


ENDS = ("0.005", "0.01", "0.25", "3600.0", "+Inf")


def test_metrics_are_made_once_whichever_threads_count_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = importlib.util.find_spec(recorder.__name__)
    assert spec
    assert spec.loader
    spec.loader.exec_module(fresh := importlib.util.module_from_spec(spec))
    meeting, makings = threading.Barrier(2), list[int]()

    class Families:
        def __iter__(self) -> Iterator[Family]:
            makings.append(1)
            with suppress(threading.BrokenBarrierError):
                meeting.wait(0.2)
            return iter(())

    monkeypatch.setattr(fresh, "families_counted", Families)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _thread: fresh.metrics(), range(2))
    assert first is second
    assert len(makings) == 1


def test_every_counted_family_has_its_event() -> None:
    for event in EVERY:
        recorder.record(event)
    names = {metric.name for metric in REGISTRY.collect() if metric.samples}
    assert {family.name.removesuffix("_total") for family in families_counted()} <= names


def test_series_of_a_consumer_begin_at_0() -> None:
    """Counters of a consumer start at 0, because a rate in PromQL would miss the first count."""
    recorder.record(JobsClaimed("fresh", "all", 1))
    died = {"channel": "fresh", "consumer": "all", "event": "retry", "state": "DEAD"}
    assert REGISTRY.get_sample_value("pulljobs_jobs_finished_total", died) == 0


@pytest.mark.django_db(transaction=True)
def test_events_are_recorded_once_a_batch_and_name_the_consumer(events: list[object]) -> None:
    consumer = ConsumerFactory.create()
    place = (consumer.channel.name, consumer.name)
    publish_many(consumer.channel.name, [b""] * 30)
    claim = pulling.Puller(USING, consumer).claim(30)
    assert claim.taken
    held = [Held(job.id, claim.taken.lease_token) for job, _message in claim.jobs]
    settlements = [outcomes.deliver(job) for job in held[:28]]
    settlements += [outcomes.reject(held[28], "no"), outcomes.release(held[29])]
    pulling.finish(settlements, lambda: dict.fromkeys([job.job_id for job in held], place))
    assert [type(event) for event in events] == [JobsPublished, JobsClaimed, JobsFinished]
    ends = {("deliver", "DELIVERED"): 28, ("reject", "DEAD"): 1, ("release", "QUEUED"): 1}
    assert events[2] == JobsFinished(ends, *place)
    assert isinstance(events[1], JobsClaimed)
    assert len(events[1].waits) == 30
    assert all(0 <= wait < 60 for wait in events[1].waits)


@pytest.mark.django_db(transaction=True)
def test_a_claim_that_a_limit_cut_is_recorded_with_its_reason(events: list[object]) -> None:
    limits: list[tuple[dict[str, Any], str]] = [
        ({"rate": "1/h"}, "rate_limited"),
        ({"max_in_flight": 1}, "max_in_flight"),
    ]
    for fields, reason in limits:
        consumer = ConsumerFactory.create(**fields)
        publish_many(consumer.channel.name, [b""] * 2)
        del events[:]
        assert len(pulling.Puller(USING, consumer).claim(2).jobs) == 1
        [limited] = [event for event in events if isinstance(event, ClaimLimited)]
        assert (limited.consumer, limited.reason) == (consumer.name, reason)
        assert (3_500 < limited.wait_seconds <= 3_600) == (reason == "rate_limited")
        pulling.Puller(USING, consumer).claim(2)
        assert sum(isinstance(event, ClaimLimited) for event in events) == 2


@pytest.mark.django_db(transaction=True)
def test_an_outcome_that_is_repeated_is_not_counted_again(events: list[object]) -> None:
    consumer = ConsumerFactory.create()
    publish_many(consumer.channel.name, [b""])
    claim = pulling.Puller(USING, consumer).claim(1)
    assert claim.taken
    settlements = [outcomes.deliver(Held(claim.jobs[0][0].id, claim.taken.lease_token))]
    assert pulling.finish(settlements).states == pulling.finish(settlements).states != {}
    assert sum(isinstance(event, JobsFinished) for event in events) == 1


@pytest.mark.django_db(transaction=True)
def test_jobs_that_a_node_had_not_started_count_as_released_and_the_rest_as_expired(
    events: list[object],
) -> None:
    consumer = ConsumerFactory.create()
    place = (consumer.channel.name, consumer.name)
    published(consumer, 5)
    dead, alive = uuid4(), uuid4()
    started, *_others = claimed(consumer, 3, node_id=dead)
    claimed(consumer, 2, node_id=alive)
    del events[:]
    assert pulling.abandon(dead, frozenset([started.job_id])) == 3
    expired, released = JobsExpired(*place, {"QUEUED": 1}), ("release", "QUEUED")
    assert events == [expired, JobsFinished({released: 2}, *place)]
    pulling.give_back(alive, but=frozenset())
    assert events[2:] == [JobsFinished({released: 2}, *place)]


@pytest.mark.django_db(transaction=True)
def test_without_a_recorder_the_consumers_of_jobs_are_not_looked_up() -> None:
    consumer = ConsumerFactory.create()
    publish_many(consumer.channel.name, [b""])
    claim = pulling.Puller(USING, consumer).claim(1)
    assert claim.taken
    settlements = [outcomes.deliver(Held(claim.jobs[0][0].id, claim.taken.lease_token))]
    assert not telemetry.is_counting()
    assert pulling.finish(settlements, lambda: pytest.fail("was asked")).states


def test_the_package_that_a_setting_needs_is_missed_by_a_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = ("prometheus_client", "opentelemetry")
    find = importlib.util.find_spec
    hidden = lambda name: None if name in gone else find(name)  # noqa: E731  short
    monkeypatch.setattr("pulljobs.checks.find_spec", hidden)
    with override_settings(PULLJOBS={"METRICS": True, "TRACING": True}):
        messages = checks.check_settings()
    assert [(message.id, message.hint) for message in messages] == [
        ("pulljobs.E018", "python -m pip install 'pulljobs[metrics]'")
    ] * 2
    with override_settings(PULLJOBS={}):
        assert checks.check_settings() == []


@pytest.mark.django_db
def test_without_the_setting_only_gauges_are_exported() -> None:
    recorder.record(JobsPublished("silent", 1, 1))
    exposition.GAUGES.forget()
    samples = parsed(exposition.answer()[0].decode())
    assert by(samples, "pulljobs_read_ok", "part")
    assert not by(samples, "pulljobs_messages_published_total", "channel")


SHARING = """
import os, sys
from pulljobs.metrics import sharing
with sharing.opened("parent"):
    from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
    from prometheus_client.multiprocess import MultiProcessCollector
    counted = Counter("counted", "x")
    counted.inc()
    if (child := os.fork()) == 0:
        counted.inc(2)
        os._exit(0)
    os.waitpid(child, 0)
    counted.inc(4)
    directory = os.environ[sharing.VARIABLE]
    files = sorted(os.listdir(directory))
    assert files == sorted(["counter_parent.db", f"counter_{child}.db"]), files
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    assert b"counted_total 7.0" in generate_latest(registry)
assert not os.path.exists(directory) and os.environ.get(sharing.VARIABLE) == sys.argv[1]
"""


def test_a_fork_counts_for_itself_and_the_directory_goes(tmp_path: object) -> None:
    """A forked process has its own file of counters. Their directory is deleted at the end."""
    done = subprocess.run(
        [sys.executable, "-c", SHARING, str(tmp_path)],
        env={"PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_a_scrape_beside_a_process_that_begins_to_count_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process creates its file of counters before it writes to it. An empty file is skipped."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    MmapedValue = values.MultiProcessValue(lambda: "1")  # type: ignore[no-untyped-call]
    MmapedValue(
        "counter", "pulljobs_messages_published", "pulljobs_messages_published_total",
        ["channel"], ["orders"], "help",
    ).inc(3)  # fmt: skip
    (tmp_path / "counter_2.db").touch()
    counted = {metric.name: metric for metric in exposition.Counted(with_others=False).collect()}
    [sample] = counted["pulljobs_messages_published"].samples
    assert sample.value == 3


@pytest.mark.parametrize("file", ["grafana", "alerts"])
def test_the_files_are_printed(file: str) -> None:
    command = [sys.executable, "-m", "pulljobs.metrics", file]
    printed = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
    assert b"pulljobs_jobs_finished_total" in printed
