"""Keys that take turns: fair shares, jobs in flight by key and rates by key."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.core.exceptions import ValidationError

from pulljobs import operating, pulling, weights
from pulljobs.engine import outcomes
from pulljobs.engine.claiming.rows import Claimed
from pulljobs.engine.claiming.turns import TurnClaim
from pulljobs.engine.low_water_marks import BEGINNING, Entry, LowWaterMarks, Position
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.engine.sql import statement
from pulljobs.engine.throttle import Throttle
from pulljobs.errors import InvalidRegistration
from pulljobs.models import Consumer, Job
from pulljobs.publishing import publish
from pulljobs.pulling import Puller
from pulljobs.storage import turns
from pulljobs.storage.rows import NotYet, Refusal
from pulljobs.storage.sessions import PLAN_FOR_QUEUES
from pulljobs.worker.throttles import Throttles
from tests.factories import USING, ConsumerFactory
from tests.keyed import claim, deliver, ids, take
from tests.sessions import (
    PATIENCE_SECONDS,
    Thread,
    lock_timeout,
    query,
    session,
    wait_for_other_transactions,
    wait_until,
)
from tests.storage.planning import GUARDED, PARAMS, TERMS
from tests.turns import (
    claimed_keys,
    fair,
    keys_of,
    known_keys,
    limited,
    most_in_flight,
    puller,
    queue,
    rated,
)

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)
WAYS_TO_SETTLE: tuple[Callable[[Held], Settlement], ...] = (
    outcomes.deliver,
    outcomes.release,
    lambda job: outcomes.retry(job, ""),
)


class TestFairShares:
    def test_a_single_job_is_claimed_beside_a_backlog(self) -> None:
        consumer = fair()
        queue(consumer, 30, "a")
        claim(consumer, 5)
        queue(consumer, 1, "b")
        assert claimed_keys(consumer, 2) == {"a": 1, "b": 1}

    def test_keys_share_by_weight(self) -> None:
        consumer = fair()
        queue(consumer, 60, "a")
        queue(consumer, 60, "b")
        weights.set_weight(consumer, "b", 3)
        shares = Counter[str | None]()
        for _claim in range(16):
            shares += claimed_keys(consumer, 4)
        assert shares == {"a": 16, "b": 48}

    def test_keys_share_however_large_the_claims_are(self) -> None:
        consumer = fair()
        weights.set_weight(consumer, "c", 3)
        for key, number in (("a", 60), ("b", 60), ("c", 180)):
            queue(consumer, number, key)
        shares = Counter[str | None]()
        for wanted in (14, 23, 5, 1, 40, 2) * 3:
            claimed = claimed_keys(consumer, wanted)
            assert claimed.total() == wanted
            shares += claimed
            turns_served = shares["a"], shares["b"], shares["c"] / 3
            assert max(turns_served) - min(turns_served) <= 1

    def test_keys_take_turns_within_a_claim(self) -> None:
        consumer = fair()
        weights.set_weight(consumer, "c", 2)
        for key in "abc":
            queue(consumer, 8, key)
        jobs = puller(consumer).claim(12).jobs
        assert "".join(message.key or "" for _job, message in jobs) == "cc".join(
            ("ab", "ab", "ab", "")
        )

    def test_a_turn_that_a_claim_cut_goes_on_in_the_next(self) -> None:
        consumer = fair()
        weights.set_weight(consumer, "a", 3)
        queue(consumer, 9, "a")
        queue(consumer, 9, "b")
        served = "".join(key for _claim in range(8) for key in claimed_keys(consumer, 1) if key)
        assert served == "aaabaaab"

    def test_a_key_that_slept_gains_nothing(self) -> None:
        consumer = fair()
        queue(consumer, 1, "b")
        queue(consumer, 20, "a")
        claim(consumer, 6)
        queue(consumer, 20, "b")
        assert claimed_keys(consumer, 8) == {"a": 4, "b": 4}

    def test_jobs_of_a_key_go_by_priority_then_in_order(self) -> None:
        consumer = fair()
        low = queue(consumer, 2, "a")
        high = queue(consumer, 2, "a", priority=5)
        assert ids(claim(consumer, 3)) == [*high, low[0]]

    def test_jobs_without_a_key_share_as_one_key(self) -> None:
        consumer = fair()
        queue(consumer, 4, None)
        queue(consumer, 4, "a")
        assert claimed_keys(consumer, 4) == {"": 2, "a": 2}

    def test_the_row_of_a_key_goes_with_its_last_waiting_job_but_not_its_weight(self) -> None:
        consumer = fair()
        weights.set_weight(consumer, "b", 2)
        queue(consumer, 1, "a")
        queue(consumer, 1, "b")
        claim(consumer)
        assert known_keys() == {"b"}
        assert weights.read_weights(consumer) == {"b": 2}

    def test_a_process_that_begins_behind_a_backlog_serves_a_fresh_key_in_its_turn(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pulljobs.engine.claiming.turns.DISCOVERED", 5)
        monkeypatch.setattr("pulljobs.engine.claiming.turns.DISCOVERING", 0.0)
        consumer = fair()
        queue(consumer, 50, "a")
        queue(consumer, 1, "b")
        assert claimed_keys(consumer, 2) == {"a": 1, "b": 1}

    @committed
    def test_a_held_snapshot_makes_claims_by_turn_no_slower(self) -> None:
        consumer = fair()
        for key in range(50):
            queue(consumer, 20, str(key))
        reader = puller(consumer)
        assert len(reader.claim(1).jobs) == 1

        def marks_save_reads() -> bool:
            assert reader.claim(1).jobs
            with_marks = blocks_read(consumer, reader._claimer.ring.entry_above())
            return blocks_read(consumer, LowWaterMarks().entry_above()) > 5 * with_marks

        with session() as old:
            old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            old.execute("SELECT 1")
            query(DEAD_TURNS)
            wait_until(marks_save_reads)  # Marks rise when other transactions have ended.

    @committed
    def test_a_turn_whose_transaction_commits_late_is_not_below_the_mark(self) -> None:
        consumer = fair()
        queue(consumer, 500, "a")
        queue(consumer, 1, "b")
        reader = puller(consumer)
        reader.claim(0)
        query("UPDATE pulljobs_flow_key SET turn_at = NULL, is_full = true WHERE key = 'b'")
        with session() as late:
            late.execute("SELECT pg_current_xact_id()")
            late.execute(
                "UPDATE pulljobs_flow_key SET turn_at = clock_timestamp(), is_full = false,"
                " writer = pg_current_xact_id() WHERE key = 'b'"
            )
            known = reader._claimer.ring.claims
            wait_until(lambda: bool(reader.claim(1).jobs) and len(known) > 3)
            late.commit()
        taken = [job.id for _claim in range(2) for job, _message in reader.claim(1).jobs]
        assert Job.objects.filter(id__in=taken, turn_key="b").exists()

    @committed
    def test_a_job_that_commits_below_the_mark_of_its_key_is_claimed(self) -> None:
        consumer, other = fair(), fair()
        reader = puller(consumer)
        with session() as late:
            late.execute("BEGIN")
            late.execute(
                "INSERT INTO pulljobs_job (consumer_id, message_id, available_at, priority, state,"
                " turn_key, retry_count, deliveries) SELECT %s, message_id, clock_timestamp(), 0,"
                " 'QUEUED', 'a', 0, 0 FROM pulljobs_job WHERE id = %s",
                [consumer.pk, queue(other, 1, "x")[0]],
            )
            queue(consumer, 3, "a")
            assert len(reader.claim(2).jobs) == 2
            late.execute("COMMIT")
        assert len(reader.claim(5).jobs) == 2

    @committed
    def test_a_claim_up_to_a_size_keeps_no_claim_from_a_new_key(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """While one claim with `max_bytes` is under way, another claims the job of a new key."""
        consumer, reached, may_go_on = fair(), threading.Event(), threading.Event()
        queue(consumer, 1, "b")

        def look_again(*args: Any) -> Claimed:
            if not reached.is_set():
                reached.set()
                assert may_go_on.wait(PATIENCE_SECONDS)
            return look(*args)

        look = TurnClaim.look_again
        monkeypatch.setattr(TurnClaim, "look_again", look_again)
        claiming = Thread(lambda: puller(consumer).claim(1, max_bytes=1_000))
        try:
            assert reached.wait(PATIENCE_SECONDS)
            queue(consumer, 1, "a")
            with lock_timeout("2s"):
                assert claimed_keys(consumer) == {"a": 1}
        finally:
            may_go_on.set()
        assert len(claiming.result().jobs) == 1


@committed
class TestRanks:
    """Keys with jobs of higher priority are served first, unless fair shares apply."""

    def test_a_key_that_rises_is_not_below_the_mark_of_its_new_rank(self) -> None:
        consumer = rated("1000000/s")
        reader = behind_a_higher_rank(consumer, "b")
        queue(consumer, 1, "b", priority=5)
        wait_for_other_transactions()  # an older one hides the new job from the look for new keys
        assert served(reader, 2) == {"a", "b"}

    def test_a_key_that_rises_within_its_turn_is_not_below_the_mark(self) -> None:
        consumer = rated("1000000/s")
        weights.set_weight(consumer, "b", 5)
        reader = behind_a_higher_rank(consumer, "b")
        before = query("SELECT turn_at, turn_rank FROM pulljobs_flow_key WHERE key = 'b'")
        queue(consumer, 4, "b", priority=5)
        query("DELETE FROM pulljobs_job WHERE turn_key = 'a' AND state = 'QUEUED'")
        rise_above(reader, consumer)
        # As if the jobs had been published after the look for new ones: the key is still in rank 0.
        query("UPDATE pulljobs_flow_key SET turn_at = %s, turn_rank = %s WHERE key = 'b'", *before)
        reader._claimer.ring.positions.pop(0, None)
        assert len(reader.claim(1).jobs) == len(reader.claim(1).jobs) == 1


def behind_a_higher_rank(consumer: Consumer, key: str) -> Puller:
    """Return a `Puller` whose low-water mark of priority 5 is later than this key's `turn_at`.

    The jobs of the key have priority 0.
    """
    queue(consumer, 2000, "a", priority=5)
    queue(consumer, 1, key)
    reader = puller(consumer)
    reader.claim(0)
    [(turn_at,)] = query("SELECT turn_at FROM pulljobs_flow_key WHERE key = %s", [key])
    marks = reader._claimer.ring.positions
    wait_until(lambda: bool(reader.claim(1).jobs) and marks[5].available_at > turn_at)
    return reader


def served(reader: Puller, claims: int) -> set[str | None]:
    """Claim jobs one by one and return their keys."""
    return {message.key for _claim in range(claims) for _job, message in reader.claim(1).jobs}


def above_its_marks(consumer: Consumer) -> Puller:
    """Return a `Puller` whose low-water marks are above all waiting jobs."""
    reader = puller(consumer)
    rise_above(reader, consumer)
    return reader


def rise_above(reader: Puller, consumer: Consumer) -> None:
    """Make claims for 0 jobs until the low-water marks are above all waiting jobs.

    Transactions of other processes keep the marks below the jobs until they end, and a mark that
    did not wait for one of them goes back when it ends.
    """
    job = Job.objects.filter(consumer=consumer).latest("available_at", "id")
    assert job.available_at
    last = Position(job.available_at, job.id)

    def is_above() -> bool:
        reader.claim(0)
        marks = reader._claimer.marks
        reached = marks.positions.get(job.priority, Position(BEGINNING, 0))
        returns = [*marks.stragglers.values(), *filter(None, (marks.below, marks.passed))]
        return reached >= last and all(at > last.available_at for at in returns)

    wait_until(is_above)


DEAD_TURNS = """
DO $$
BEGIN
    FOR number IN 1 .. 400 LOOP
        UPDATE pulljobs_flow_key SET turn_at = clock_timestamp(), writer = pg_current_xact_id();
    END LOOP;
END
$$
"""
"""Statement that moves the turns of all keys 400 times, as that many claims would."""


def blocks_read(consumer: Consumer, ring: Entry) -> int:
    """Return how many blocks a claim of five jobs reads if it searches the keys from `ring` on."""
    params: dict[str, Any] = {
        "consumer_id": consumer.pk,
        "wanted": 5,
        "keys": 5,
        "priorities": [0],
        "ring_ranks": ring.priorities,
        "ring_marks": ring.mark_ats,
        "ring_gap_tops": ring.gap_tops,
        "ring_gap_bottoms": ring.gap_bottoms,
        **TERMS,
        **GUARDED,
    }
    explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "
    with session() as asking, psycopg.ClientCursor(asking) as cursor:
        asking.execute(PLAN_FOR_QUEUES)
        row = cursor.execute(explain + statement("claim_turns"), params).fetchone()
    assert row
    [plan] = row[0] if isinstance(row[0], list) else json.loads(row[0])
    return int(plan["Plan"]["Shared Hit Blocks"]) + int(plan["Plan"]["Shared Read Blocks"])


@committed
@pytest.mark.parametrize("name", ["discover_keys", "claim_turns"])
def test_jobs_of_a_key_are_found_where_the_planner_knows_one_key_only(name: str) -> None:
    """Jobs of a key are read by the index of keys, even if the statistics know one key only."""
    consumer = fair()
    query(QUEUE_MANY.format(consumer=consumer.pk, channel=consumer.channel_id))
    query("ANALYZE pulljobs_job")
    with session() as asking, psycopg.ClientCursor(asking) as cursor:
        asking.execute(PLAN_FOR_QUEUES)
        cursor.execute("EXPLAIN " + statement(name), PARAMS[name] | {"consumer_id": consumer.pk})
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "pulljobs_job_turn" in plan
    assert "pulljobs_job_claim" not in plan


QUEUE_MANY = """
INSERT INTO pulljobs_job
    (consumer_id, message_id, available_at, priority, state, turn_key, retry_count, deliveries)
SELECT {consumer}, number, now(), 0, 'QUEUED', repeat('a', 200), 0, 0
FROM generate_series(1, 30000) AS number
"""


class TestSlots:
    def test_a_key_has_at_most_so_many_jobs_in_flight(self) -> None:
        consumer = limited(2)
        queue(consumer, 5, "a")
        queue(consumer, 1, "b")
        assert claimed_keys(consumer) == {"a": 2, "b": 1}
        more = puller(consumer).claim(10)
        assert not more.jobs
        assert more.refusal is Refusal.KEY_LIMITED

    def test_full_keys_keep_no_claim_from_a_key_with_a_slot(self) -> None:
        consumer = limited(1)
        for key in "abc":
            queue(consumer, 1, key)
        claim(consumer, 3)
        for key in "abcd":
            queue(consumer, 1, key)
        assert claimed_keys(consumer, 1) == {"d": 1}

    @committed
    def test_the_end_of_a_job_frees_its_slot(self) -> None:
        consumer = limited(1)
        first, second = queue(consumer, 2, "a")
        reader = above_its_marks(consumer)
        held = claim(consumer)
        assert ids(held) == [first]
        deliver(*held)
        assert [job.id for job, _message in reader.claim(5).jobs] == [second]

    def test_a_job_that_waits_for_its_retry_frees_its_slot(self) -> None:
        consumer = limited(1)
        queue(consumer, 2, "a")
        [job] = claim(consumer)
        pulling.finish([outcomes.retry(job, "again")])
        assert len(claim(consumer)) == 1

    def test_a_killed_job_frees_its_slot(self) -> None:
        consumer = limited(1)
        first, second = queue(consumer, 2, "a")
        claim(consumer)
        operating.kill([first], by="test")
        assert ids(claim(consumer)) == [second]

    def test_the_row_of_a_key_goes_with_its_last_job(self) -> None:
        consumer = limited(1)
        queue(consumer, 1, "a")
        held = claim(consumer)
        assert known_keys() == {"a"}
        deliver(*held)
        assert known_keys() == set()

    def test_a_higher_priority_moves_its_key_forward(self) -> None:
        consumer = limited(1)
        queue(consumer, 1, "a")
        claim(consumer, 0)
        queue(consumer, 1, "b", priority=5)
        assert claimed_keys(consumer, 1) == {"b": 1}

    def test_a_job_that_is_asked_for_by_its_id_needs_a_slot_and_holds_it(self) -> None:
        consumer = limited(1)
        first, second = queue(consumer, 2, "a")
        held = take(consumer, first)
        assert isinstance(held, Held)
        assert take(consumer, second) is Refusal.BUSY_KEY
        assert not claim(consumer)
        deliver(held)
        assert ids(claim(consumer)) == [second]

    def test_max_in_flight_bounds_all_keys_together(self) -> None:
        consumer = limited(2, max_in_flight=3)
        queue(consumer, 3, "a")
        queue(consumer, 3, "b")
        assert len(claim(consumer)) == 3
        assert puller(consumer).claim(5).refusal is Refusal.MAX_IN_FLIGHT

    @committed
    def test_no_instant_has_more_jobs_of_a_key_in_flight(self) -> None:
        """Four threads that claim and settle never have more than two jobs of a key in flight."""
        consumer = limited(2, retry_strategy="constant:0", max_retries=99)
        for _number in range(160):
            publish(consumer.channel.name, b"", key=random.choice("abcd"))
        at_work = [Thread(lambda: _drain(consumer)) for _thread in range(4)]
        for thread in at_work:
            thread.result()
        assert not Job.objects.exists()
        assert most_in_flight(consumer) == 2


def _drain(consumer: Consumer) -> None:
    reader, deadline = puller(consumer), time.monotonic() + 120
    while Job.objects.exists():
        assert time.monotonic() < deadline
        taken, jobs, *_rest = reader.claim(3)
        held = [Held(job.id, taken.lease_token) for job, _message in jobs] if taken else []
        for job in held:
            pulling.finish([random.choices(WAYS_TO_SETTLE, [8, 1, 1])[0](job)])


class TestRates:
    def test_each_key_has_a_rate_of_its_own(self) -> None:
        consumer = rated("1/h", rate_burst=2)
        queue(consumer, 5, "a")
        queue(consumer, 5, "b")
        assert claimed_keys(consumer) == {"a": 2, "b": 2}
        more = puller(consumer).claim(10)
        assert more.refusal is Refusal.KEY_LIMITED
        assert more.next_due is not None
        assert timedelta(minutes=59) < more.next_due <= timedelta(hours=1)

    def test_keys_without_a_token_keep_no_claim_from_a_key_with_one(self) -> None:
        consumer = rated("1/h")
        for key in "abc":
            queue(consumer, 1, key)
        claim(consumer, 3)
        for key in "abcd":
            queue(consumer, 1, key)
        assert claimed_keys(consumer, 1) == {"d": 1}

    def test_a_token_comes_with_time(self) -> None:
        consumer = rated("1/h")
        queue(consumer, 3, "a")
        claim(consumer)
        query(
            "UPDATE pulljobs_flow_key SET filled_at = filled_at - interval '1 hour',"
            " turn_at = turn_at - interval '1 hour'"
        )
        assert claimed_keys(consumer) == {"a": 1}

    def test_a_job_takes_as_many_tokens_as_it_costs(self) -> None:
        consumer = rated("1/h", rate_burst=5)
        first, second, third = (queue(consumer, 1, "a", cost=cost)[0] for cost in (2, 3, 9))
        assert ids(claim(consumer)) == [first, second]
        refusal = take(consumer, third)
        assert isinstance(refusal, NotYet)
        assert timedelta(hours=4.9) < refusal.next_due <= timedelta(hours=5)
        more = puller(consumer).claim(1)
        assert more.next_due is not None
        assert timedelta(hours=4.9) < more.next_due <= timedelta(hours=5)

    def test_a_released_job_gives_its_token_back(self) -> None:
        consumer = rated("1/h")
        queue(consumer, 2, "a")
        [job] = claim(consumer)
        pulling.finish([outcomes.release(job)])
        assert claimed_keys(consumer) == {"a": 1}
        assert not claim(consumer)

    def test_a_job_that_is_asked_for_by_its_id_takes_a_token(self) -> None:
        consumer = rated("1/h")
        first, second = queue(consumer, 2, "a")
        assert isinstance(take(consumer, first), Held)
        refusal = take(consumer, second)
        assert isinstance(refusal, NotYet)
        assert refusal.reason is Refusal.RATE_LIMITED
        assert timedelta(minutes=59) < refusal.next_due <= timedelta(hours=1)

    def test_the_row_of_a_key_stays_until_its_bucket_is_full(self) -> None:
        consumer = rated("1/h")
        queue(consumer, 1, "a")
        deliver(*claim(consumer))
        turns.sweep(USING)
        assert known_keys() == {"a"}
        query("UPDATE pulljobs_flow_key SET filled_at = filled_at - interval '1 hour'")
        turns.sweep(USING)
        assert known_keys() == set()


class TestThrottles:
    def test_a_throttle_of_a_key_holds_back_no_other_key(self) -> None:
        consumer = fair()
        queue(consumer, 1, "a")
        second = queue(consumer, 1, "a")[0]
        queue(consumer, 1, "b")
        throttles = Throttles(lambda: None)
        throttle = throttles.get(consumer.pk).of_key("a")
        throttle.ask(60)
        throttles.write(USING)
        assert claimed_keys(consumer) == {"b": 1}
        more = puller(consumer).claim(5)
        assert more.refusal is Refusal.KEY_LIMITED
        assert more.next_due is not None
        assert timedelta(seconds=40) < more.next_due <= timedelta(seconds=60)
        refusal = take(consumer, second)
        assert isinstance(refusal, NotYet)
        assert refusal.reason is Refusal.THROTTLED

    def test_a_resume_ends_the_throttles_of_keys(self) -> None:
        consumer, other = rated("1/h"), fair()
        for each in (consumer, other):
            queue(each, 1, "a")
            claim(each, 0)
            turns.throttle(USING, {(each.pk, "a"): 60.0})
        operating.pause(consumer, None)
        assert claimed_keys(consumer) == {"a": 1}
        assert not claim(other), "that of another consumer goes on"

    def test_jobs_of_the_key_that_were_claimed_before_do_not_start(self) -> None:
        throttle = Throttle()
        throttle.of_key("a").ask(60)
        now = time.monotonic()
        assert throttle.holds_back("a", now)
        assert not throttle.holds_back("b", now)
        assert not throttle.is_unwritten, "claims of other keys go on"

    def test_without_turns_it_is_that_of_the_consumer(self) -> None:
        consumer = ConsumerFactory.create()
        throttles = Throttles(lambda: None)
        throttles.get(consumer.pk).of_key("a").ask(60)
        throttles.write(USING)
        consumer.refresh_from_db()
        assert consumer.throttled_until is not None


class TestTurnsLost:
    def test_a_key_whose_jobs_have_ended_unnoticed_gets_its_turn(self) -> None:
        consumer = limited(1)
        first, second = queue(consumer, 2, "a")
        claim(consumer)
        query("DELETE FROM pulljobs_job WHERE id = %s", [first])
        assert not claim(consumer)
        turns.sweep(USING)
        assert ids(claim(consumer)) == [second]

    def test_sweeps_look_at_a_part_of_the_keys_each(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pulljobs.storage.turns.LOOKED_AT", 2)
        consumer = limited(1)
        for key in "abc":
            queue(consumer, 1, key)
        claim(consumer, 0)
        query("UPDATE pulljobs_flow_key SET turn_at = NULL, is_full = true")
        turns.sweep(USING)
        assert claimed_keys(consumer) == {"a": 1, "b": 1}
        turns.sweep(USING)
        assert claimed_keys(consumer) == {"c": 1}

    def test_a_higher_bound_counts_for_full_keys_at_the_next_sweep(self) -> None:
        consumer = limited(1)
        queue(consumer, 3, "a")
        claim(consumer)
        Consumer.objects.update(max_in_flight_per_key=2)
        turns.sweep(USING)
        assert claimed_keys(consumer) == {"a": 1}

    @pytest.mark.parametrize("fields", [{"rate": "60/s"}, {"rate": "", "rate_per_key": False}])
    def test_a_higher_rate_counts_for_keys_without_a_token_at_the_next_sweep(
        self, fields: dict[str, Any]
    ) -> None:
        """The sweep moves turns to now that the lower rate had put off by a day."""
        consumer = rated("1/d", fair_by_key=True)
        first, second = (queue(consumer, 2, key) for key in "ab")
        assert ids(claim(consumer)) == [first[0], second[0]]
        assert not turns.sweep(USING)
        assert not claim(consumer)
        for name, value in fields.items():
            setattr(consumer, name, value)
        consumer.save()
        turns.sweep(USING)
        assert ids(claim(consumer)) == [first[1], second[1]]

    def test_a_key_that_waits_for_its_token_is_left_alone_by_a_sweep(self) -> None:
        consumer = rated("1/h", rate_burst=5)
        queue(consumer, 5, "a", cost=2)
        claim(consumer)
        turn = query("SELECT turn_at, writer::text FROM pulljobs_flow_key")
        turns.sweep(USING)
        assert query("SELECT turn_at, writer::text FROM pulljobs_flow_key") == turn

    @committed
    def test_a_key_that_lost_its_turn_gets_it_back(self) -> None:
        consumer = fair()
        queue(consumer, 2, "a")
        reader = above_its_marks(consumer)
        assert len(reader.claim(1).jobs) == 1
        query("UPDATE pulljobs_flow_key SET turn_at = NULL")
        assert not reader.claim(5).jobs
        turns.sweep(USING)
        assert len(reader.claim(5).jobs) == 1

    @committed
    def test_keys_of_a_dump_from_another_cluster_are_claimable_after_a_sweep(self) -> None:
        """A sweep makes keys claimable again that bear transaction ids of another cluster."""
        consumer = fair()
        queue(consumer, 2, "a")
        reader = above_its_marks(consumer)
        assert len(reader.claim(1).jobs) == 1
        query("UPDATE pulljobs_flow_key SET writer = (writer::text::bigint + 1000000)::text::xid8")
        assert not reader.claim(5).jobs
        turns.sweep(USING)
        assert len(reader.claim(5).jobs) == 1


class TestChangesAtRunTime:
    def test_jobs_from_before_get_their_keys(self) -> None:
        consumer = ConsumerFactory.create()
        queue(consumer, 6, "a")
        queue(consumer, 2, "b")
        queue(consumer, 2, None)
        reader = puller(consumer)
        assert len(reader.claim(2).jobs) == 2
        consumer.fair_by_key = True
        consumer.save()
        taken = [job.id for job, _message in reader.claim(6).jobs]
        assert keys_of([Held(id, None) for id in taken]) == {"a": 2, "b": 2, "": 2}  # type: ignore[arg-type]

    @committed
    def test_without_the_limit_all_jobs_are_claimable_again(self) -> None:
        consumer = limited(1)
        queue(consumer, 5, "a")
        reader = above_its_marks(consumer)
        assert len(reader.claim(9).jobs) == 1
        Consumer.objects.filter(pk=consumer.pk).update(max_in_flight_per_key=None)
        assert len(reader.claim(9).jobs) == 4
        turns.sweep(USING)
        assert known_keys() == set()

    def test_a_rate_that_is_saved_alone_counts(self) -> None:
        consumer = rated("1/h")
        queue(consumer, 9, "a")
        consumer.rate = "4/s"
        consumer.save(update_fields=["rate"])
        assert claimed_keys(consumer) == {"a": 4}
        consumer.rate_per_key = False
        consumer.save(update_fields=["rate_per_key"])
        row = Consumer.objects.get(pk=consumer.pk)
        assert (row.rate_per_second, row.key_rate_per_second) == (4, None)

    @pytest.mark.parametrize(
        ("fields", "wrong"),
        [
            ({"exclusive_keys": True, "fair_by_key": True}, "exclusive_keys"),
            ({"exclusive_keys": True, "max_in_flight_per_key": 2}, "exclusive_keys"),
            ({"max_in_flight_per_key": 0}, "max_in_flight_per_key"),
            ({"rate_per_key": True}, "rate_per_key"),
        ],
    )
    def test_wrong_combinations_are_named(self, fields: dict[str, object], wrong: str) -> None:
        with pytest.raises(ValidationError) as refused:
            Consumer(name="any", **fields).clean()
        assert list(refused.value.message_dict) == [wrong]

    @pytest.mark.parametrize("weight", [0, 1_001, True, 1.5])
    def test_a_wrong_weight_is_refused(self, weight: int) -> None:
        with pytest.raises(InvalidRegistration, match="from 1 to 1000"):
            weights.set_weight(fair(), "a", weight)

    @pytest.mark.parametrize("key", ["x" * 256, "a\0", "\ud800", None])
    def test_the_weight_of_a_wrong_key_is_refused(self, key: Any) -> None:
        with pytest.raises(InvalidRegistration, match="must be text of 255 characters or fewer"):
            weights.set_weight(fair(), key, 2)
