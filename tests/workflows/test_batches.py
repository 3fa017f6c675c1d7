"""Members, counts, rounds and callbacks of batches, on one connection."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models.functions import Now

from pulljobs import batches, jobs, operating, publishing
from pulljobs.engine import members
from pulljobs.errors import BatchEnded, InvalidMessage, UnknownBatch, UnknownChannel
from pulljobs.models import BatchSum, Consumer, Job, Message
from pulljobs.publishing import Draft
from pulljobs.states import State
from pulljobs.workflows.batches import looking
from pulljobs.workflows.models import Batch, BatchPart
from tests.factories import USING, ConsumerFactory
from tests.workflows.conftest import BATCH, callbacks, endings, fill, settle, sweep

pytestmark = pytest.mark.django_db


def test_a_batch_calls_back_once_when_its_last_member_has_ended(
    consumer: Consumer, report: Consumer
) -> None:
    made = fill(consumer, 3, report)
    settle(consumer, 2)
    sweep()
    assert not callbacks(report)
    view = batches.get(made.id)
    assert (view.state, view.progress, view.live) == ("closed", 66.7, 1)
    assert view.expected_at is not None
    assert view.expected_at > view.now
    settle(consumer, 1)
    for _look in range(2):
        sweep()
    assert endings(report) == [("complete", 1), ("success", 1)]
    [complete, _success] = callbacks(report)
    assert complete.headers == {
        BATCH: str(made),
        f"{BATCH}-Name": "nightly",
        f"{BATCH}-Event": "complete",
        f"{BATCH}-Round": "1",
        f"{BATCH}-Members": "3",
        f"{BATCH}-Delivered": "3",
        f"{BATCH}-Dead": "0",
    }
    assert bytes(complete.payload) == b"complete"
    view = batches.get(str(made))
    assert (view.state, view.progress, view.expected_at) == ("completed", 100.0, None)
    assert not BatchSum.objects.exists()


def test_an_end_beyond_the_year_9999_is_not_expected(consumer: Consumer) -> None:
    made = fill(consumer, 2)
    settle(consumer, 1)
    Batch.objects.update(created_at=Now() - timedelta(days=4), members=1_000_000)
    assert batches.get(made.id).expected_at is None


def test_dead_members_make_the_callback_for_dead_ones(consumer: Consumer, report: Consumer) -> None:
    made = fill(consumer, 3, report)
    settle(consumer, delivered=1, dead=2)
    sweep()
    assert endings(report) == [("complete", 1), ("dead", 1)]
    [first, _second] = batches.get(made.id).dead_members()
    assert (first.consumer, first.reason, first.error) == (consumer.name, "rejected", "bad")


def test_a_redriven_member_reopens_the_batch_and_each_round_calls_back_once(
    consumer: Consumer, report: Consumer
) -> None:
    made = fill(consumer, 2, report)
    settle(consumer, delivered=1, dead=1)
    sweep()
    assert batches.redrive(made.id) == 1
    sweep()
    view = batches.get(made.id)
    assert (view.state, view.round, view.live) == ("closed", 2, 1)
    settle(consumer, dead=1)
    sweep()
    operating.redrive([view.dead_members()[0].job_id])
    settle(consumer, delivered=1)
    sweep()  # It is redriven and ended between two looks.
    assert endings(report) == [
        ("complete", 1), ("dead", 1), ("complete", 2), ("dead", 2), ("complete", 3), ("success", 3),
    ]  # fmt: skip
    assert batches.get(made.id).redriven == 2


def test_an_empty_batch_completes_when_it_is_closed(report: Consumer) -> None:
    made = batches.create("empty", on_complete=(report.channel.name, b""))
    sweep()
    assert not callbacks(report)
    made.close()
    sweep()
    assert endings(report) == [("complete", 1)]


def test_an_open_batch_takes_members_until_it_is_complete(
    consumer: Consumer, report: Consumer
) -> None:
    made = batches.create("open", on_complete=(report.channel.name, b""))
    made.publish(consumer.channel.name, "first", key="a")
    settle(consumer, 1)
    sweep()
    assert batches.get(made.id).state == "open"
    made.close()
    batches.extend(str(made)).publish(consumer.channel.name, "second")
    sweep()
    assert not callbacks(report)
    settle(consumer, 1)
    sweep()
    assert endings(report) == [("complete", 1)]
    with pytest.raises(BatchEnded, match="is completed and takes no members"):
        made.publish(consumer.channel.name, "third")
    with pytest.raises(UnknownBatch):
        batches.extend(5).publish(consumer.channel.name, "fourth")
    assert Message.objects.filter(channel=consumer.channel).count() == 2


def test_a_member_finds_its_batch_and_adds_to_it(consumer: Consumer, report: Consumer) -> None:
    fill(consumer, 1, report)
    member = Job.objects.get(consumer=consumer)
    own = batches.find_batch(member.id)
    assert own is not None
    own.publish(consumer.channel.name, "more")
    settle(consumer, 1)
    sweep()
    assert not callbacks(report)
    settle(consumer, 1)
    sweep()
    assert endings(report) == [("complete", 1), ("success", 1)]
    [plain] = publishing.publish(consumer.channel.name, "no member").job_ids
    assert batches.find_batch(plain) is None


def test_a_nested_batch_is_one_member(consumer: Consumer, report: Consumer) -> None:
    on = (report.channel.name, b"")
    with batches.batch("outer", on_complete=on) as outer:
        outer.publish(consumer.channel.name, "own")
        with outer.batch("inner", on_complete=on) as inner:
            inner.publish_many(consumer.channel.name, ["a", "b"])
    settle(consumer, 1)
    settle(consumer, delivered=1, dead=1)
    sweep()
    names = [message.headers[f"{BATCH}-Name"] for message in callbacks(report)]
    assert names == ["inner", "outer"]
    view = batches.get(outer.id)
    assert (view.members, view.delivered, view.dead) == (2, 1, 1)
    assert [nested.id for nested in view.nested()] == [inner.id]
    assert batches.redrive(outer.id) == 1
    settle(consumer, delivered=1)
    sweep()
    view = batches.get(outer.id)
    assert (view.round, view.delivered, view.dead, view.state) == (2, 2, 0, "completed")


def test_cancel_kills_the_queued_members_of_a_batch_and_of_those_in_it(
    consumer: Consumer, report: Consumer
) -> None:
    with batches.batch("outer", on_complete=(report.channel.name, b"")) as outer:
        outer.publish_many(consumer.channel.name, ["a", "b"])
        with outer.batch("inner") as inner:
            inner.publish(consumer.channel.name, "c")
    assert batches.cancel(outer.id, by="olga") == 3
    sweep()
    view = batches.get(outer.id)
    assert (view.members, view.dead) == (3, 3)
    assert endings(report) == [("complete", 1)]
    assert batches.get(inner.id).dead_members()[0].error == f"batch {inner} was cancelled by olga"
    with pytest.raises(BatchEnded, match="cancelled"):
        outer.publish(consumer.channel.name, "late")


def test_results_come_in_the_order_of_publishing(consumer: Consumer) -> None:
    made = fill(consumer, 3)
    settle(consumer, delivered=1, dead=1)
    states = [(result.state, result.error) for result in batches.results(made.id)]
    assert states == [(State.DELIVERED, None), (State.DEAD, "bad"), (State.QUEUED, None)]
    ids = BatchPart.objects.get(batch_id=made.id).job_ids
    assert [result.job_id for result in batches.results(made.id)] == ids


def test_what_is_rolled_back_counts_nowhere(consumer: Consumer) -> None:
    with suppress(UnknownChannel), batches.batch("broken") as made:
        made.publish(consumer.channel.name, "a")
        made.publish("no-such-channel", "b")
    assert not Batch.objects.exists()
    kept = fill(consumer, 1)
    with transaction.atomic():
        batches.extend(kept.id).publish(consumer.channel.name, "c")
        transaction.set_rollback(True)
    assert batches.get(kept.id).members == Job.objects.filter(batch_id=kept.id).count() == 1


def test_a_refused_callback_is_tried_again_and_then_published_once(consumer: Consumer) -> None:
    with batches.batch("early", on_complete=("reports", "done")) as made:
        made.publish(consumer.channel.name, "a")
    settle(consumer, 1)
    for _look in range(3):
        sweep()
    view = batches.get(made.id)
    assert (view.state, view.live) == ("closed", 0)
    assert "no channel 'reports'" in str(view.error)
    late = ConsumerFactory.create(channel__name="reports")
    for _look in range(2):
        sweep()
    assert endings(late) == [("complete", 1)]
    assert batches.get(made.id).error is None


def test_members_with_keys_limits_and_duplicates_are_counted_once(report: Consumer) -> None:
    bounded = ConsumerFactory.create(max_queued_per_key=1, key_overflow="replace")
    name = bounded.channel.name
    with batches.batch("keyed", on_complete=(report.channel.name, b"")) as made:
        made.publish(name, "first", key="a")
        replaced = made.publish(name, "second", key="a").replaced
        receipts = made.publish_many(name, [Draft(payload="x", message_id="1")] * 2)
    assert len(replaced) == 1
    assert [receipt.duplicate for receipt in receipts] == [False, True]
    assert batches.get(made.id).members == 2
    settle(bounded, 2)
    sweep()
    assert endings(report) == [("complete", 1)]


def test_a_process_without_members_runs_the_statements_that_know_no_batches(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "_until", float("-inf"))
    publishing.publish_many(consumer.channel.name, ["a", "b"])
    settle(consumer, delivered=1, dead=1)
    assert members.choose("deliver") == "deliver"
    fill(consumer, 1)
    settle(consumer, 1)
    assert members.choose("deliver") == "deliver_members"
    made = fill(consumer, 1)
    settle(consumer, 1)
    assert batches.get(made.id).delivered == 1


def test_a_killed_member_is_dead_for_its_batch_and_a_deleted_batch_leaves_no_sums(
    consumer: Consumer, report: Consumer
) -> None:
    made = fill(consumer, 2, report)
    [first, second] = Job.objects.filter(batch_id=made.id).values_list("id", flat=True)
    operating.kill([first], by="olga")
    operating.delete([first])
    settle(consumer, 1)
    sweep()
    assert endings(report) == [("complete", 1), ("dead", 1)]
    assert jobs.get(second).state is State.DELIVERED
    Batch.objects.all().delete()
    BatchSum.objects.create(batch_id=made.id, dead=1)
    looking.sweep(USING)
    assert not BatchSum.objects.exists()


@pytest.mark.parametrize(
    ("name", "callback"),
    [
        ("", None),
        ("a\nb", None),
        ("x" * 201, None),
        ("callback", "reports"),
        ("callback", ("reports", object())),
        ("callback", ("", b"")),
        ("callback", ("a\x00", b"")),
        ("callback", ("reports", Draft(payload=b"", message_id="1"))),
    ],
)
def test_a_bad_name_or_callback_is_refused_before_anything_is_written(
    name: str, callback: object
) -> None:
    with pytest.raises(InvalidMessage):
        batches.create(name, on_dead=callback)  # type: ignore[arg-type]  # what a caller may pass
    with pytest.raises(InvalidMessage, match="parent must be a batch"):
        batches.create("inner", parent="outer")  # type: ignore[arg-type]  # its id
    assert not Batch.objects.exists()


@pytest.mark.parametrize("id", ["nonsense", "\ud800", "", -1, 2**70, None])
@pytest.mark.parametrize(
    "call",
    [
        batches.get,
        batches.cancel,
        batches.redrive,
        batches.extend,
        lambda id: list(batches.results(id)),
    ],
)
def test_what_is_no_id_is_an_unknown_batch(call: Callable[[Any], object], id: Any) -> None:
    with pytest.raises(UnknownBatch):
        call(id)
