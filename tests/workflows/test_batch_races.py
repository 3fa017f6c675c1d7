"""Interleavings of settlements, publishes, merges and decisions of one batch.

They are built with a second session that stops after its statement.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from pulljobs import batches, hooks
from pulljobs.batches import Callback
from pulljobs.engine import outcomes
from pulljobs.errors import BatchEnded
from pulljobs.models import BatchSum, Consumer, Job
from pulljobs.publishing import publish
from pulljobs.storage import jobs, statements
from pulljobs.workflows.batches import auditing, deciding, looking
from pulljobs.workflows.batches import callbacks as callbacks_module
from pulljobs.workflows.batches.deciding import Look
from pulljobs.workflows.batches.history import forget_batches
from pulljobs.workflows.models import Batch, WorkflowRun
from tests.factories import USING, claimed
from tests.sessions import (
    Session,
    Thread,
    at_once,
    blocked_by,
    lock_timeout,
    query,
    run,
    session,
    wait_until,
)
from tests.workflows.conftest import endings, fill, settle, sweep

pytestmark = pytest.mark.django_db(transaction=True)
ONCE = [("complete", 1), ("success", 1)]


@pytest.fixture(autouse=True)
def _fail_rather_than_hang(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make waits for locks fail soon, and let no hook decide about batches before the test does."""
    monkeypatch.setattr(hooks, "batch_listeners", [])
    with lock_timeout():
        yield


def settle_in(other: Session, consumer: Consumer) -> None:
    """Deliver a member in another session that does not commit yet."""
    [held] = claimed(consumer)
    params = outcomes.deliver_parameters(held.lease_token, ([held.job_id], [outcomes.UNREPORTED]))
    run(other, "deliver_members", params)


def test_the_later_of_two_last_settlements_completes_the_batch(
    consumer: Consumer, report: Consumer
) -> None:
    fill(consumer, 2, report)
    with session() as other:
        settle_in(other, consumer)
        settle(consumer, 1)
        sweep()
        assert not endings(report)
        other.commit()
    sweep()
    assert endings(report) == ONCE


def test_looks_of_many_processes_decide_once(consumer: Consumer, report: Consumer) -> None:
    for _round in range(5):
        fill(consumer, 4, report)

        def settle_and_look(_number: int) -> None:
            settle(consumer, 1)
            looking.sweep(USING)

        at_once(4, settle_and_look)
        sweep()
    assert len(endings(report)) == 2 * 5
    assert set(endings(report)) == set(ONCE)
    assert not BatchSum.objects.exists()


def test_an_open_publisher_delays_the_decision_and_stops_no_merge(
    consumer: Consumer, report: Consumer
) -> None:
    made = fill(consumer, 1, report)
    other_batch = fill(consumer, 1, report)
    with session() as other:
        run(other, "lock_batch_to_add", {"batch_id": made.id})
        settle(consumer, 2)
        assert looking.look_at_each(USING, [made.id, other_batch.id]) == {made.id}
        row = Batch.objects.get(pk=made.id)
        assert (row.members, row.delivered, row.completed_at) == (1, 1, None)
        assert BatchSum.objects.filter(batch_id=made.id).count() == 1
    sweep()
    assert endings(report) == ONCE * 2


def test_a_publisher_waits_for_the_decision_and_is_refused(
    consumer: Consumer, report: Consumer
) -> None:
    made = fill(consumer, 1, report)
    settle(consumer, 1)
    with session() as other:
        run(other, "lock_batch", {"batch_id": made.id})
        run(other, "merge_batch_sums", {"batch_id": made.id, "is_decision": True})
        late = Thread(lambda: made.publish(consumer.channel.name, "late"))
        wait_until(lambda: blocked_by(other))
        assert run(other, "decide_batch", {"batch_id": made.id})[0].is_complete
        other.commit()
    with pytest.raises(BatchEnded):
        late.result()
    assert batches.get(made.id).members == 1


def test_a_publisher_goes_on_after_a_decision_that_was_rolled_back(consumer: Consumer) -> None:
    made = fill(consumer, 1)
    settle(consumer, 1)
    with session() as other:
        run(other, "lock_batch", {"batch_id": made.id})
        late = Thread(lambda: made.publish(consumer.channel.name, "late"))
        wait_until(lambda: blocked_by(other))
        other.rollback()
    late.result()
    sweep()
    assert batches.get(made.id).live == 1


def test_a_member_published_between_merge_and_decision_is_counted(
    consumer: Consumer, report: Consumer
) -> None:
    made = fill(consumer, 1, report)
    settle(consumer, 1)
    [row] = _merge(made.id)
    assert row.is_due
    made.publish(consumer.channel.name, "more")
    sweep()
    assert not endings(report)
    settle(consumer, 1)
    sweep()
    assert endings(report) == ONCE


def test_a_process_that_dies_between_merge_and_decision_leaves_a_note(
    consumer: Consumer, report: Consumer
) -> None:
    made = fill(consumer, 1, report)
    settle(consumer, 1)
    _merge(made.id)
    [note] = BatchSum.objects.all()
    assert (note.members, note.delivered, note.dead, note.redriven) == (0, 0, 0, 0)
    sweep()
    assert endings(report) == ONCE


def test_a_process_that_dies_in_the_decision_leaves_everything_as_it_was(
    consumer: Consumer, report: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fill(consumer, 1, report)
    settle(consumer, 1)

    def die(*_arguments: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(callbacks_module, "publish", die)
        with suppress(SystemExit):
            sweep()
    assert not endings(report)
    assert batches.get(made.id).completed_at is None
    sweep()
    assert endings(report) == ONCE


def test_two_merges_of_one_batch_count_each_sum_once(consumer: Consumer) -> None:
    made = fill(consumer, 3)
    with session() as other:
        run(other, "merge_batch_sums", {"batch_id": made.id, "is_decision": False})
        settle(consumer, 1)
        assert deciding.look(USING, made.id) is Look.LOCKED
        other.commit()
    assert deciding.look(USING, made.id) is Look.NOTHING
    row = Batch.objects.get(pk=made.id)
    assert (row.members, row.delivered, row.dead) == (3, 1, 0)


def test_a_member_of_a_deleted_batch_is_not_looked_at_again_and_again(consumer: Consumer) -> None:
    made = fill(consumer, 1)
    settle(consumer, dead=1)
    sweep()
    assert forget_batches(USING, timedelta(seconds=-1)) == 1
    jobs.redrive(USING, [Job.objects.get(batch_id=made.id).pk])
    settle(consumer, delivered=1)
    assert looking.look_at_each(USING, [made.id]) == set()


def test_cancel_waits_for_a_publisher_and_kills_its_members(consumer: Consumer) -> None:
    made = batches.create("open")
    with transaction.atomic():
        made.publish(consumer.channel.name, "early")
        cancelling = Thread(lambda: batches.cancel(made.id))
        wait_until(_is_waiting)
    assert cancelling.result() == 1


def test_a_redrive_waits_for_no_publisher(consumer: Consumer) -> None:
    """A publisher may add members in a long transaction, while others die."""
    made = fill(consumer, 1)
    settle(consumer, dead=1)
    with session() as other:
        run(other, "lock_batch_to_add", {"batch_id": made.id})
        with lock_timeout("2s"), transaction.atomic(using=USING):
            assert auditing.redrive(made.id, by="olga") == 1


def test_a_decision_waits_for_a_run_that_suspends_and_makes_it_due(
    consumer: Consumer, report: Consumer
) -> None:
    with batches.batch("children") as made:
        made.publish(consumer.channel.name, "child")
    [held] = [*claimed(consumer)]
    run_id = _publish_run(report)
    [run_held] = claimed(report)
    Batch.objects.filter(pk=made.id).update(run_id=run_id)
    WorkflowRun.objects.create(id=run_id, workflow="", version=1, waiting_batch=made.id)
    jobs.finish(USING, [outcomes.deliver(held)])
    with session() as other:
        other.execute(
            "UPDATE pulljobs_job SET state = 'QUEUED', lease_token = NULL,"
            " available_at = clock_timestamp() + interval '1 day' WHERE id = %s",
            [run_held.job_id],
        )
        deciding_thread = Thread(sweep)
        wait_until(lambda: blocked_by(other))
        other.commit()
    deciding_thread.result()
    assert [each.job_id for each in claimed(report)] == [run_id]


def test_a_lock_that_an_end_waits_for_delays_the_end_of_no_other_batch(
    consumer: Consumer, report: Consumer
) -> None:
    """The end of a batch that waits for a locked key of its callback delays no other batch."""
    Consumer.objects.filter(pk=report.pk).update(max_queued_per_key=5)
    publish(report.channel.name, "creates the row of the key", key="k")
    callback = Callback(report.channel.name, key="k")
    with batches.batch("first", on_complete=callback) as made:
        made.publish(consumer.channel.name, "0")
    second = fill(consumer, 1)
    settle(consumer, 2)
    with session() as other:
        other.execute("SELECT FROM pulljobs_bounded_key WHERE key = 'k' FOR UPDATE")
        assert looking.look_at_each(USING, [made.id, second.id]) == {made.id}
        assert batches.get(second.id).completed_at is not None
    sweep()
    assert batches.get(made.id).completed_at is not None


def _publish_run(consumer: Consumer) -> int:
    return publish(consumer.channel.name, "run").job_ids[0]


def _merge(batch_id: int) -> Any:
    return statements.run(USING, "merge_batch_sums", {"batch_id": batch_id, "is_decision": False})


def _is_waiting() -> bool:
    query("SELECT pg_stat_clear_snapshot()")  # a transaction takes only one snapshot
    [(count,)] = query(
        "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    )
    return bool(count)
