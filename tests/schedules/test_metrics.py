"""Tests of the metrics of schedules."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from prometheus_client import REGISTRY

from example_project.state import BASE_DIR
from pulljobs import schedules
from pulljobs.engine import telemetry
from pulljobs.metrics import recorder
from pulljobs.models import Channel, Consumer
from pulljobs.schedules.firing import fire_due
from pulljobs.schedules.gauges import read_samples
from tests.factories import USING
from tests.schedules.conftest import Make, make_due
from tests.sessions import SLACK, query

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _counted() -> Iterator[None]:
    end = telemetry.record_with(recorder.record)
    yield
    end()


def value(name: str, channel: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, {"channel": channel, **labels}) or 0.0


def test_fired_slots_are_counted_with_their_lateness_and_skipped_slots_by_reason(
    make: Make, consumer: Consumer
) -> None:
    make_due(make(cron="0 * * * *"), 10)
    fire_due()
    channel = consumer.channel.name
    assert value("pulljobs_slot_late_seconds_count", channel) == 1
    assert 0 <= value("pulljobs_slot_late_seconds_sum", channel) < 3600 + SLACK
    assert value("pulljobs_slots_skipped_total", channel, reason="missed") == 9
    assert value("pulljobs_schedule_refusals_total", channel) == 0


def test_slots_that_a_change_of_the_rule_skips_are_counted(make: Make, consumer: Consumer) -> None:
    row = make()
    make_due(row, 3)
    schedules.update(row.name, cron="0 * * * *")
    labels = {"channel": consumer.channel.name, "reason": "changed"}
    assert value("pulljobs_slots_skipped_total", **labels) == 3


FIRST_EVENT = """
import django; django.setup()
from prometheus_client import REGISTRY
from pulljobs.metrics import recorder
from pulljobs.schedules.telemetry import SlotsRecorded
recorder.record(SlotsRecorded("reports", [0.1], {}))
print(REGISTRY.get_sample_value("pulljobs_slot_late_seconds_count", {"channel": "reports"}))
"""


def test_slots_count_even_as_the_first_event_of_a_process() -> None:
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "example_project.settings"}
    command = [sys.executable, "-c", FIRST_EVENT]
    done = subprocess.run(
        command, cwd=BASE_DIR, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "1.0\n", done.stderr


def test_refused_publishes_are_counted_and_their_series_begins_at_0(make: Make) -> None:
    row = make()
    make_due(row)
    query("UPDATE pulljobs_schedule SET channel_name = 'gone'")
    fire_due()
    assert not Channel.objects.filter(name="gone").exists()
    assert value("pulljobs_schedule_refusals_total", "gone") == 1
    labels = {"channel": "gone", "reason": "missed"}
    assert REGISTRY.get_sample_value("pulljobs_slots_skipped_total", labels) == 0


def test_the_gauge_is_the_lateness_of_the_schedule_that_is_due_longest(make: Make) -> None:
    assert [value for _name, _labels, value in read_samples(USING)] == [0]
    make("first")
    assert [value for _name, _labels, value in read_samples(USING)] == [0]
    query("UPDATE pulljobs_schedule SET due_at = now() - interval '90 s'")
    make("second")
    [(_name, _labels, late)] = read_samples(USING)
    assert 90 <= late < 91 + SLACK
