"""`pulljobs explain JOB` gives the reasons for which a job waits."""

import re
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError
from django.db.models.functions import Now

from pulljobs import ids, operating, pulling
from pulljobs.engine import outcomes
from pulljobs.models import Consumer, LimitGroup, Node
from pulljobs.publishing import publish
from pulljobs.pulling import Puller
from pulljobs.states import State
from pulljobs.storage import listen, nodes, throttles, turns
from tests.circuits import open_circuit_by_task
from tests.diagnosis.commands import answer, text
from tests.factories import USING, ConsumerFactory, JobFactory, claimed, published
from tests.keyed import claim
from tests.sessions import SLACK, query

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}")


def reasons(job: int) -> dict[str, str]:
    """Return the texts of the reasons for which a job waits, by code."""
    content, code = answer("explain", str(job))
    assert code == 0
    assert text("explain", ids.encode(job))
    return {reason["code"]: reason["text"] for reason in content["reasons"]}


@pytest.fixture
def consumer() -> Consumer:
    """Return a consumer for which a process waits, so that no reason names a missing process."""
    made: Consumer = ConsumerFactory.create()
    listen.wait(USING, [made.pk], uuid4(), HOUR)
    return made


def test_the_next_job_waits_for_nothing_and_others_for_their_turn(consumer: Consumer) -> None:
    first, second = published(consumer, 2)
    assert set(reasons(first)) == {"next"}
    assert answer("explain", str(first))[0]["position"] == 0
    assert answer("explain", str(second))[0]["position"] == 1
    [urgent] = published(consumer, priority=5)
    assert answer("explain", str(urgent))[0]["position"] == 0
    assert answer("explain", str(second))[0]["position"] == 2


def test_a_delayed_or_retried_job_waits_until_it_is_due(consumer: Consumer) -> None:
    [job] = published(consumer, delay=HOUR)
    assert set(reasons(job)) == {"not_due"}
    [job] = published(consumer)
    held = claimed(consumer)
    pulling.finish([outcomes.retry(held[0], "no luck", after=HOUR)])
    assert "retry 1 is due" in reasons(job)["not_due"]


def test_a_job_that_is_snoozed_after_a_retry_is_due_without_being_a_retry(
    consumer: Consumer,
) -> None:
    [job] = published(consumer)
    pulling.finish([outcomes.retry(claimed(consumer)[0], "no luck", after=timedelta())])
    pulling.finish([outcomes.release(claimed(consumer)[0], after=HOUR)])
    assert "It waits for its time: it is due at" in reasons(job)["not_due"]


def test_a_job_of_a_deleted_and_paused_consumer_names_every_reason(consumer: Consumer) -> None:
    [job] = published(consumer)
    consumer.paused_until = Now() + HOUR
    consumer.save()
    consumer.channel.paused_until = Now() + HOUR
    consumer.channel.save()
    consumer.deleted_at = Now()
    consumer.save()
    content, _code = answer("explain", str(job))
    assert [reason["code"] for reason in content["reasons"]] == ["deleted", "paused", "paused"]
    path = f"{consumer.channel.name}/{consumer.name}"
    assert content["reasons"][0]["text"] == f"Its consumer {path} is deleted: restore it."


def test_a_job_waits_for_the_limit_of_jobs_in_flight(consumer: Consumer) -> None:
    consumer.max_in_flight = 1
    consumer.save()
    first, second = published(consumer, 2)
    assert "max_in_flight" not in reasons(second)
    Puller(USING, consumer).claim(1)
    named = "Jobs in flight: 1, the max_in_flight of its consumer: "
    assert f"{named}{ids.encode(first)} on a client." in reasons(second)["max_in_flight"]


def test_a_job_waits_for_the_rate_of_its_consumer(consumer: Consumer) -> None:
    consumer.rate, consumer.rate_burst = "60/h", 2
    consumer.save()
    first, second, third = published(consumer, 3)
    assert "rate_limited" not in reasons(second)
    assert "2.00 of 2 tokens are left" in reasons(third)["rate_limited"]
    Puller(USING, consumer).claim(1)
    assert set(reasons(first)) == {"in_flight"}
    assert set(reasons(second)) == {"next"}
    assert "The rate of its consumer is 60/h: 1.0" in reasons(third)["rate_limited"]


def time_of_claim(job: int, consumer: Consumer) -> datetime:
    """Claim jobs one by one until the given job is claimed. Return the time of its claim."""
    puller = Puller(USING, consumer)
    while job not in {claimed.id for claimed, _message in puller.claim(1).jobs}:
        pass
    [(claimed_at,)] = query(
        "SELECT max(claimed_at) FROM pulljobs_lease WHERE %s = ANY(job_ids)", [job]
    )
    assert isinstance(claimed_at, datetime)
    return claimed_at


def assert_comes_true(job: int, consumer: Consumer, code: str, first: int | None = None) -> Any:
    """Check that the job is claimed at the time that `explain` names, in JSON and in text.

    If `first` is given, that job must be claimed then. Return the reason that has this code.
    """
    content, _code = answer("explain", str(job))
    [reason] = [each for each in content["reasons"] if each["code"] == code]
    shown = text("explain", str(job)).replace("\n", " ")
    assert re.sub(r"\d", "0", reason["text"]) in re.sub(r"\d", "0", shown)
    named = [datetime.fromisoformat(f"{time}+00:00") for time in TIME.findall(shown)]
    earliest = datetime.fromisoformat(content["earliest"])
    assert min(abs(time - earliest) for time in named) < timedelta(seconds=0.1 + SLACK)
    late = (time_of_claim(first or job, consumer) - earliest).total_seconds()
    assert -0.1 < late < 0.1 + SLACK
    return reason


def test_a_job_waits_for_the_end_of_a_throttle(consumer: Consumer) -> None:
    [job_id] = published(consumer)
    throttles.throttle(USING, {consumer.pk: 1.0})
    reason = assert_comes_true(job_id, consumer, "throttled")
    assert "nothing is claimed before" in reason["text"]
    assert "throttled" not in reasons(job_id)


def test_the_time_that_is_named_for_a_limited_job_comes_true(consumer: Consumer) -> None:
    consumer.rate, consumer.rate_burst = "30/m", 1
    consumer.save()
    _first, second = published(consumer, 2)
    Puller(USING, consumer).claim(1)
    assert_comes_true(second, consumer, "rate_limited")


def test_a_job_waits_for_the_job_that_holds_its_key() -> None:
    consumer = ConsumerFactory.create(exclusive_keys=True)
    first, second = published(consumer, 2, key="a")
    listen.wait(USING, [consumer.pk], uuid4(), HOUR)
    assert Puller(USING, consumer).claim(2).taken
    assert ids.encode(first) in reasons(second)["key_busy"]
    assert set(reasons(first)) == {"in_flight"}


def test_a_job_waits_for_a_worker_or_for_an_open_circuit() -> None:
    consumer: Any = ConsumerFactory.create()
    [job] = published(consumer)
    assert "start a worker with a handler for it" in reasons(job)["no_worker"]
    assert set(reasons(job)) == {"no_worker"}
    place, node = f"{consumer.channel.name}/{consumer.name}", uuid4()
    nodes.register(USING, node, "host:7")
    report = {"serves": [place], "circuits": {place: {"level": 1, "seconds": 2, "state": "open"}}}
    Node.objects.filter(pk=node).update(report=report)
    assert set(reasons(job)) == {"circuit_open"}
    assert "host:7" in reasons(job)["circuit_open"]


def test_only_jobs_of_a_held_back_task_are_explained_by_it() -> None:
    consumer: Any = ConsumerFactory.create()
    [failing], [healthy] = (
        publish(consumer.channel.name, {"task": f"shop.tasks.{name}", "args": []}).job_ids
        for name in ("mail", "index")
    )
    path, node = f"{consumer.channel.name}/{consumer.name}", uuid4()
    nodes.register(USING, node, "host:7")
    circuits = {path: open_circuit_by_task("shop.tasks.mail")}
    Node.objects.filter(pk=node).update(report={"serves": [path], "circuits": circuits})
    assert set(reasons(healthy)) == {"next"}
    assert f"task shop.tasks.mail of {path}" in reasons(failing)["circuit_open"]


def test_a_job_in_flight_names_the_node_that_holds_it(consumer: Consumer) -> None:
    [job] = published(consumer)
    node = uuid4()
    nodes.register(USING, node, "host:7")
    claimed(consumer, node_id=node)
    assert "held by node host:7" in reasons(job)["in_flight"]


@pytest.mark.parametrize(("state", "code"), [(State.DELIVERED, "settled"), (State.DEAD, "dead")])
def test_a_settled_job_gives_its_end_as_the_only_reason(state: State, code: str) -> None:
    job = JobFactory.create(state=state)
    assert set(reasons(job.id)) == {code}


def test_an_unknown_or_invalid_id_is_an_error() -> None:
    with pytest.raises(CommandError, match="There is no job 1"):
        answer("explain", "1")
    with pytest.raises(CommandError, match="is not an id"):
        answer("explain", "nonsense")


def test_a_job_whose_consumer_row_is_gone_says_how_to_kill_it(consumer: Consumer) -> None:
    """If SQL has deleted the row of the consumer, `explain` names the call that kills the job."""
    [job] = published(consumer)
    query("DELETE FROM pulljobs_consumer")
    reason = reasons(job)["no_consumer"]
    assert f"number {consumer.pk}, is gone" in reason
    with pytest.raises(CommandError, match=rf"is QUEUED, and the row .* {consumer.pk}, is gone"):
        answer("inspect", "job", str(job))
    assert f"pulljobs.operating.kill([{job}], by=...)" in reason
    assert operating.kill([job], by="olga").done == [job]
    assert set(reasons(job)) == {"settled"}


def test_a_position_beyond_the_limit_is_a_lower_bound(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A position that is found within the limit of entries to read is exact, otherwise "or more".

    Jobs in flight use entries up, but do not come before the job.
    """
    *_others, job = published(consumer, 4)
    claimed(consumer, 2)
    positions = {}
    for entries in (3, 4):
        monkeypatch.setattr("pulljobs.diagnosis.explain.LOOKED_THROUGH", entries)
        content = answer("explain", str(job))[0]
        positions[entries] = content["position"], content["position_is_least"]
        more = " or more" if entries == 3 else ""
        wanted = f"Jobs of its consumer that come before it: 1{more}."
        assert wanted in text("explain", str(job))
    assert positions == {3: (1, True), 4: (1, False)}


def test_a_job_waits_for_the_limits_of_its_group_until_the_time_that_is_named() -> None:
    group = LimitGroup.objects.create(name="stripe-api", rate="120/m", rate_burst=3)
    first, second = (ConsumerFactory.create(limit_group=group) for _member in range(2))
    published(first, 1, cost=3)
    [job] = published(second, cost=2)
    assert len(Puller(USING, first).claim(1).jobs) == 1
    reason = assert_comes_true(job, second, "rate_limited")
    assert "The rate of its limit group stripe-api is 120/m: " in reason["text"]
    expected = {"of": "group", "name": "stripe-api", "rate": "120/m", "needed": 2, "burst": 3}
    assert expected.items() <= reason["limit"].items()


def test_a_job_waits_for_jobs_of_other_members_in_flight() -> None:
    group = LimitGroup.objects.create(name="stripe-api", max_in_flight=1)
    first, second = (ConsumerFactory.create(limit_group=group) for _member in range(2))
    [holder] = published(first)
    [job] = published(second)
    Puller(USING, first).claim(1)
    content, _code = answer("explain", str(job))
    [reason] = [each for each in content["reasons"] if each["code"] == "max_in_flight"]
    path = f"{first.channel.name}/{first.name}"
    [named] = reason["limit"]["holders"]
    assert (named["job"], named["consumer"], named["node"]) == (ids.encode(holder), path, None)
    assert "the max_in_flight of its limit group stripe-api" in reason["text"]


def test_the_time_of_a_job_in_a_later_window_is_named() -> None:
    consumer = ConsumerFactory.create(rate="2/d", rate_window=True)
    *_others, job = published(consumer, 7)
    Puller(USING, consumer).claim(1)
    content, _code = answer("explain", str(job))
    [(days,)] = query("SELECT date_bin('1 day', now(), timestamptz 'epoch') + interval '3 days'")
    earliest = datetime.fromisoformat(content["earliest"])
    assert abs(earliest - days) < timedelta(seconds=0.1)


def test_a_job_waits_for_a_slot_of_its_key(consumer: Consumer) -> None:
    consumer.max_in_flight_per_key = 1
    consumer.save()
    first, second = published(consumer, 2, key="a")
    Puller(USING, consumer).claim(2)
    assert ids.encode(first) in reasons(second)["key_full"]


def test_the_time_of_a_job_with_others_of_its_key_before_it_comes_true() -> None:
    consumer = ConsumerFactory.create(rate="4/s", rate_burst=1, rate_per_key=True)
    first, second, job = (published(consumer, key="a", cost=cost)[0] for cost in (1, 1, 3))
    assert first in {claimed.id for claimed, _message in Puller(USING, consumer).claim(9).jobs}
    published(consumer, 5, key="b")
    reason = assert_comes_true(job, consumer, "key_rate_limited")
    expected = {"of": "key", "key": "a", "rate": "4/s", "burst": 1.0, "needed": 2.0}
    assert expected.items() <= reason["limit"].items()
    assert set(reasons(second)) == {"in_flight"}


@pytest.mark.parametrize("options", [{}, {"fair_by_key": True}, {"rate_per_key": True}])
def test_the_time_of_a_job_behind_one_that_costs_more_than_the_burst_comes_true(
    options: dict[str, bool],
) -> None:
    consumer = ConsumerFactory.create(rate="4/s", rate_burst=2, **options)
    *_others, job = (published(consumer, key="a", cost=cost)[0] for cost in (2, 9, 1))
    assert len(Puller(USING, consumer).claim(1).jobs) == 1
    code = "key_rate_limited" if consumer.rate_per_key else "rate_limited"
    assert assert_comes_true(job, consumer, code)["limit"]["needed"] == 3


def test_the_time_of_a_fair_job_comes_true_behind_a_long_queue_of_another_key() -> None:
    consumer = ConsumerFactory.create(rate="4/s", rate_burst=1, fair_by_key=True)
    published(consumer, 50, key="a")
    Puller(USING, consumer).claim(1)
    _first, job = published(consumer, 2, key="b")
    content = answer("explain", str(job))[0]
    assert content["position"] == 3, "two of the other key, and the first of its own"
    assert_comes_true(job, consumer, "rate_limited")


def test_the_time_of_a_job_of_a_throttled_key_comes_true() -> None:
    consumer = ConsumerFactory.create(fair_by_key=True)
    [job] = published(consumer, key="a")
    turns.throttle(USING, {(consumer.pk, "a"): 1.5})
    assert assert_comes_true(job, consumer, "key_throttled")["limit"]["key"] == "a"


def test_a_job_behind_a_retry_of_its_key_is_named_its_time() -> None:
    consumer = ConsumerFactory.create(exclusive_keys=True)
    first, job = published(consumer, 2, key="a")
    [held] = claim(consumer)
    pulling.finish([outcomes.retry(held, "again", after=timedelta(seconds=1.5))])
    reason = assert_comes_true(job, consumer, "key_busy", first)
    assert reason["limit"] == {"of": "key", "key": "a", "holders": [ids.encode(first)]}


def test_a_job_waits_for_the_turns_of_other_keys() -> None:
    consumer = ConsumerFactory.create(fair_by_key=True)
    jobs = [published(consumer, 2, key=key)[1] for key in "abc"]
    assert len(Puller(USING, consumer).claim(3).jobs) == 3
    places = [reasons(job).get("key_turn", "none") for job in jobs]
    assert sorted(place.split()[-1] for place in places) == ["1.", "2.", "none"]
