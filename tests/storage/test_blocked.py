"""Blocked jobs are counted next to other jobs without a time, at a bounded cost."""

import pytest

from pulljobs.models import Consumer
from pulljobs.states import State
from pulljobs.storage import backlog, counts, jobs
from pulljobs.storage.backlog import Backlog
from tests.factories import USING, published
from tests.keyed import blocked, claim, exclusive, queued
from tests.sessions import query

pytestmark = pytest.mark.django_db

CAP = 10


@pytest.fixture(autouse=True)
def _caps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "CAPS", (CAP,))
    monkeypatch.setattr(counts, "CAP", CAP)


@pytest.fixture
def consumer() -> Consumer:
    return exclusive()


def killed(consumer: Consumer, count: int) -> None:
    jobs.kill(USING, published(consumer, count), reason="killed")


def block(consumer: Consumer, count: int) -> None:
    queued(consumer, "z" * (1 + count))
    claim(consumer, 1)
    while len(blocked()) < count:
        claim(consumer, 1 + count)


def counted(consumer: Consumer) -> Backlog:
    [backlog_now] = backlog.backlogs(USING, [consumer.pk])
    return backlog_now


@pytest.mark.parametrize("dead", [0, CAP - 1, 3 * CAP])
def test_older_dead_jobs_do_not_hide_it(consumer: Consumer, dead: int) -> None:
    """The count of blocked jobs is exact, however many jobs are dead."""
    killed(consumer, dead)
    block(consumer, 4)
    backlog_now = counted(consumer)
    assert (backlog_now.blocked, backlog_now.in_flight, backlog_now.dead) == (4, 1, min(dead, CAP))
    assert not backlog_now.is_least("blocked")
    [queued] = [count for count in counts.live(USING, [consumer.pk]) if count.state == State.QUEUED]
    assert (queued.jobs, queued.capped) == (4, False)


@pytest.mark.parametrize("dead", [0, 3 * CAP])
def test_it_is_counted_up_to_the_cap(consumer: Consumer, dead: int) -> None:
    """With more blocked jobs than the cap, the cap is reported, as a minimum."""
    killed(consumer, dead)
    block(consumer, 3 * CAP)
    backlog_now = counted(consumer)
    assert backlog_now.blocked == CAP
    assert backlog_now.is_least("blocked")


def test_where_it_is_too_much_it_is_estimated_without_what_is_in_flight(
    consumer: Consumer,
) -> None:
    """The estimate of blocked jobs above the cap leaves out jobs in flight."""
    killed(consumer, CAP)
    block(consumer, 3 * CAP)
    published(consumer, 4 * CAP)
    claim(consumer, 4 * CAP)
    query("ANALYZE pulljobs_job")
    assert backlog.estimate(USING, counted(consumer)) == pytest.approx(3 * CAP, rel=0.1)


def test_few_dead_jobs_leave_it_exact_whatever_is_ready(consumer: Consumer) -> None:
    """The count of blocked jobs is exact next to any number of ready jobs."""
    killed(consumer, CAP - 1)
    block(consumer, 4)
    queued(consumer, "abcdefghi" * CAP)
    backlog_now = counted(consumer)
    assert (backlog_now.blocked, backlog_now.is_least("blocked")) == (4, False)


def test_jobs_without_a_key_are_not_looked_at(consumer: Consumer) -> None:
    killed(consumer, 3 * CAP)
    published(consumer, 3 * CAP)
    backlog_now = counted(consumer)
    assert (backlog_now.ready, backlog_now.blocked, backlog_now.is_least("blocked")) == (
        CAP,
        0,
        False,
    )


@pytest.mark.owner
def test_next_to_many_dead_jobs_a_bounded_number_is_read_and_the_count_is_marked(
    consumer: Consumer,
) -> None:
    killed(consumer, 3 * CAP)
    block(consumer, 4)
    queued(consumer, "abcdefghi" * 20)
    query("ANALYZE pulljobs_job")
    before = _rows_read()
    backlog_now = counted(consumer)
    assert _rows_read() - before <= 6 * CAP
    assert backlog_now.blocked < 4
    assert backlog_now.is_least("blocked")
    assert backlog_now.is_capped


def _rows_read() -> int:
    """Return how many rows of the job table this transaction has read."""
    [(read,)] = query(
        "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables"
        " WHERE relname = 'pulljobs_job'"
    )
    return int(read)
