"""What waits for the threads of a worker, and for how long."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from pulljobs.handlers import ClaimedJob, Handler
from pulljobs.states import Event
from pulljobs.worker import job_pool, thread_pool
from pulljobs.worker.result_buffer import Outbox
from pulljobs.worker.shared_state import IDLE
from pulljobs.worker.thread_pool import Pool
from tests.sessions import PATIENCE_SECONDS, wait_until
from tests.worker.claiming import unclaimed


class Lane:
    """A pool of threads, and what it says."""

    def __init__(self, concurrency: int) -> None:
        self.outbox, self.gate = Outbox(), threading.Event()
        self.slots = [IDLE] * concurrency
        self.pool = Pool(concurrency, self.slots, self.outbox, lambda: None)
        self.pool.start()

    def job(self, function: Callable[[ClaimedJob], Any], **how: Any) -> ClaimedJob:
        job = unclaimed(**how)
        job.handler = Handler(channel="c", consumer="c", function=function)
        return job

    def blocks(self, job: ClaimedJob) -> None:
        assert self.gate.wait(PATIENCE_SECONDS)

    def events(self, count: int) -> list[Event | None]:
        wait_until(lambda: len(self.outbox.said) >= count)
        return [word.event if word else None for _job, word in self.outbox.said]

    def end(self) -> None:
        self.gate.set()
        self.pool.end()
        assert self.pool.join(time.monotonic() + PATIENCE_SECONDS)


@pytest.fixture
def lane() -> Iterator[Lane]:
    made = Lane(2)
    yield made
    made.end()


def nothing(job: ClaimedJob) -> None:
    """Done at once."""


@pytest.mark.usefixtures("lane")
def test_there_is_room_for_idle_threads_and_nobody_waits_for_slow_jobs(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_pool, "WORK_AHEAD", 0.0)
    assert lane.pool.room() == 4, "nothing is known yet"
    lane.pool.take([lane.job(nothing)])
    lane.events(1)
    wait_until(lambda: lane.pool.room() == 2)
    lane.pool.take([lane.job(lane.blocks, number=2)])
    wait_until(lambda: lane.slots.count(IDLE) == 1)
    assert lane.pool.room() == 1
    lane.pool.take([lane.job(lane.blocks, number=3)])
    wait_until(lambda: lane.slots.count(IDLE) == 0)
    assert lane.pool.room() == 0


def test_job_that_waited_too_long_to_have_all_of_its_time_is_given_back(lane: Lane) -> None:
    ran: list[int] = []
    late = lane.job(lambda job: ran.append(job.id), start_by=time.monotonic() - 1)
    lane.pool.take([late])
    assert lane.events(1) == [Event.RELEASE]
    assert ran == []


def test_what_waits_while_no_thread_comes_free_is_given_back(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_pool, "LONGEST_WAIT", timedelta(milliseconds=50))
    lane.pool.take([lane.job(lane.blocks, number=number) for number in (1, 2, 3)])
    wait_until(lambda: lane.slots.count(IDLE) == 0)

    def is_given_back() -> bool:
        lane.pool.mind()
        return bool(lane.outbox.said)

    wait_until(is_given_back)
    assert lane.events(1) == [Event.RELEASE]
    assert lane.pool.room() <= 0, "nor are others claimed to wait"


@pytest.mark.django_db(transaction=True)
def test_idle_threads_keep_no_connection_beyond_its_age(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_pool, "TIDY", 0.05)
    opened: list[Any] = []

    def asks(job: ClaimedJob) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        opened.append(connection.connection)

    # Both wait with the patience from before until each had a job.
    meeting = threading.Barrier(2, timeout=PATIENCE_SECONDS)
    lane.pool.take([lane.job(lambda job: meeting.wait(), number=number) for number in (1, 2)])
    lane.events(2)
    lane.pool.take([lane.job(asks, number=3)])
    wait_until(lambda: bool(opened) and opened[0].closed)
