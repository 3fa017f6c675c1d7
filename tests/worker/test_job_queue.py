"""Queue from which the threads of a worker take jobs."""

import threading
from queue import Empty

import pytest

from pulljobs.handlers import ClaimedJob
from pulljobs.worker.job_queue import JobQueue
from tests.sessions import PATIENCE_SECONDS, wait_until
from tests.worker.claiming import unclaimed

THREADS = 6
JOBS = 3000


class Takers:
    """Threads that take all jobs of a queue until its end."""

    def __init__(self, timeout: float) -> None:
        self.queue, self._timeout = JobQueue(THREADS), timeout
        self.taken: list[tuple[int, ClaimedJob]] = []
        self._threads = [
            threading.Thread(target=self._take, args=(number,)) for number in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def _take(self, number: int) -> None:
        while True:
            try:
                job = self.queue.get(number, self._timeout)
            except Empty:
                continue
            if job is None:
                return
            self.taken.append((number, job))

    def wait_for(self, job: ClaimedJob) -> None:
        before = len(self.taken)
        self.queue.put([job])
        wait_until(lambda: len(self.taken) > before)

    def end(self) -> None:
        self.queue.end()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()


def test_each_job_is_taken_once_though_threads_give_up_waiting_at_any_moment() -> None:
    takers = Takers(timeout=0.0001)
    jobs = [unclaimed(number) for number in range(JOBS)]
    for start in range(0, JOBS, 3):
        takers.queue.put(jobs[start : start + 3])
    takers.end()
    assert sorted(job.id for _number, job in takers.taken) == sorted(job.id for job in jobs)


def test_few_jobs_are_taken_by_few_threads() -> None:
    takers = Takers(timeout=PATIENCE_SECONDS)
    for number in range(30):
        takers.wait_for(unclaimed(number))
    takers.end()
    numbers = {number for number, _job in takers.taken[10:]}  # All threads wait by then.
    assert max(numbers) < THREADS / 2, "the idle thread with the lowest number is woken"


def test_emptied_queue_returns_its_jobs_and_an_ended_one_returns_none() -> None:
    queue = JobQueue(1)
    jobs = [unclaimed(number) for number in range(3)]
    queue.put(jobs)
    assert queue.empty() == jobs
    assert len(queue) == 0
    with pytest.raises(Empty):
        queue.get(0, timeout=0.001)
    queue.end()
    assert queue.get(0, timeout=PATIENCE_SECONDS) is None
