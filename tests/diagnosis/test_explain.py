"""`pulljobs explain JOB` says what a job waits for."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError
from django.db.models.functions import Now

from pulljobs import ids, operating, pulling
from pulljobs.engine import outcomes
from pulljobs.models import Consumer, Node
from pulljobs.pulling import Puller
from pulljobs.states import State
from pulljobs.storage import listen, nodes
from tests.diagnosis.commands import answer, text
from tests.factories import USING, ConsumerFactory, JobFactory, claimed, published
from tests.sessions import query

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)


def reasons(job: int) -> dict[str, str]:
    content, code = answer("explain", str(job))
    assert code == 0
    assert text("explain", ids.encode(job))
    return {one["code"]: one["text"] for one in content["reasons"]}


@pytest.fixture
def consumer() -> Consumer:
    """One that is served."""
    made: Consumer = ConsumerFactory.create()
    listen.wait(USING, [made.pk], uuid4(), HOUR)
    return made


def test_next_one_has_nothing_in_its_way(consumer: Consumer) -> None:
    first, second = published(consumer, 2)
    assert set(reasons(first)) == {"next"}
    assert answer("explain", str(first))[0]["position"] == 0
    assert answer("explain", str(second))[0]["position"] == 1
    [urgent] = published(consumer, priority=5)
    assert answer("explain", str(urgent))[0]["position"] == 0
    assert answer("explain", str(second))[0]["position"] == 2


def test_time_to_come(consumer: Consumer) -> None:
    [job] = published(consumer, delay=HOUR)
    assert set(reasons(job)) == {"not_due"}
    [job] = published(consumer)
    held = claimed(consumer)
    pulling.finish([outcomes.retry(held[0], "no luck", after=HOUR)])
    assert "retry 1 is due" in reasons(job)["not_due"]


def test_consumers_that_take_nothing(consumer: Consumer) -> None:
    [job] = published(consumer)
    consumer.paused_until = Now() + HOUR
    consumer.save()
    consumer.channel.paused_until = Now() + HOUR
    consumer.channel.save()
    consumer.deleted_at = Now()
    consumer.save()
    content, _code = answer("explain", str(job))
    assert [one["code"] for one in content["reasons"]] == ["deleted", "paused", "paused"]


def test_no_room_in_flight(consumer: Consumer) -> None:
    consumer.max_in_flight = 1
    consumer.save()
    _first, second = published(consumer, 2)
    assert "max_in_flight" not in reasons(second)
    Puller(USING, consumer).claim(1)
    assert "1 jobs are in flight" in reasons(second)["max_in_flight"]


def test_key_that_another_job_holds() -> None:
    consumer = ConsumerFactory.create(exclusive_keys=True)
    first, second = published(consumer, 2, key="a")
    listen.wait(USING, [consumer.pk], uuid4(), HOUR)
    assert Puller(USING, consumer).claim(2).taken
    assert ids.encode(first) in reasons(second)["key_busy"]
    assert set(reasons(first)) == {"in_flight"}


def test_circuits_of_nodes_and_nobody_who_serves() -> None:
    consumer: Any = ConsumerFactory.create()
    [job] = published(consumer)
    assert set(reasons(job)) == {"no_worker"}
    place, node = f"{consumer.channel.name}/{consumer.name}", uuid4()
    nodes.register(USING, node, "host:7")
    report = {"serves": [place], "circuits": {place: {"level": 1, "seconds": 2, "state": "open"}}}
    Node.objects.filter(pk=node).update(report=report)
    assert set(reasons(job)) == {"circuit_open"}
    assert "host:7" in reasons(job)["circuit_open"]


def test_job_that_somebody_holds(consumer: Consumer) -> None:
    [job] = published(consumer)
    node = uuid4()
    nodes.register(USING, node, "host:7")
    claimed(consumer, node_id=node)
    assert "held by node host:7" in reasons(job)["in_flight"]


@pytest.mark.parametrize(("state", "code"), [(State.DELIVERED, "settled"), (State.DEAD, "dead")])
def test_job_that_is_settled(state: State, code: str) -> None:
    job = JobFactory.create(state=state)
    assert set(reasons(job.id)) == {code}


def test_unknown_ids_are_clear_errors() -> None:
    with pytest.raises(CommandError, match="There is no job 1"):
        answer("explain", "1")
    with pytest.raises(CommandError, match="is not an id"):
        answer("explain", "nonsense")


def test_consumer_whose_row_is_gone(consumer: Consumer) -> None:
    """By SQL; the ORM refuses."""
    [job] = published(consumer)
    query("DELETE FROM pulljobs_consumer")
    said = reasons(job)["no_consumer"]
    assert f"number {consumer.pk}, is gone" in said
    with pytest.raises(CommandError, match=rf"is QUEUED, and the row .* {consumer.pk}, is gone"):
        answer("inspect", "job", str(job))
    assert f"pulljobs.operating.kill([{job}], by=...)" in said
    assert operating.kill([job], by="olga").done == [job]
    assert set(reasons(job)) == {"settled"}


def test_place_that_was_not_reached_is_told_as_the_least(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries of jobs that are in flight come first, and are none that it waits for."""
    *_others, job = published(consumer, 4)
    claimed(consumer, 2)
    found = {}
    for entries in (3, 4):
        monkeypatch.setattr("pulljobs.diagnosis.explain.LOOKED_THROUGH", entries)
        content = answer("explain", str(job))[0]
        found[entries] = content["position"], content["position_is_least"]
        more = " or more" if entries == 3 else ""
        assert f"1{more} jobs of its consumer come before it." in text("explain", str(job))
    assert found == {3: (1, True), 4: (1, False)}
