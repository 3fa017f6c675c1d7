"""Queue of the jobs that wait for the threads of a pool, and of the threads that wait for jobs."""

import heapq
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty

from pulljobs.handlers import ClaimedJob


class JobQueue:
    """Jobs that wait for a thread, in their order.

    Idle threads with low numbers are woken first, so that few jobs need few threads and few
    database connections: idle threads close old connections.
    """

    def __init__(self, threads: int) -> None:
        self._jobs: deque[ClaimedJob] = deque()
        self._idle: list[int] = []
        """Heap of the numbers of the threads that wait for a job."""
        self._lock = threading.Lock()
        self._wakers = [threading.Lock() for _thread in range(threads)]
        """A lock for each thread, which waits until another thread releases it."""
        self._is_ended = False
        for waker in self._wakers:
            waker.acquire()

    def __len__(self) -> int:
        return len(self._jobs)

    def put(self, jobs: Sequence[ClaimedJob]) -> None:
        """Queue the jobs, and wake an idle thread, which wakes the next if jobs are left.

        So quick jobs do not wake all threads, which would only wait for the interpreter's lock.
        """
        self._jobs.extend(jobs)
        self._wake(1)

    def get(self, number: int, timeout: float) -> ClaimedJob | None:
        """Return the next job for the thread of that number, or None after `end` if none is left.

        Raise Empty if there is none for `timeout` seconds.
        """
        try:
            return self._jobs.popleft()
        except IndexError:
            return self._wait_for_job(number, timeout)

    def empty(self) -> list[ClaimedJob]:
        """Remove and return all jobs that no thread has taken."""
        jobs = list[ClaimedJob]()
        while self._jobs:
            try:
                jobs.append(self._jobs.popleft())
            except IndexError:  # A thread has taken it.
                break
        return jobs

    def end(self) -> None:
        """Let `get` return None once no job is left. Nothing may be queued afterwards."""
        self._is_ended = True
        self._wake(len(self._wakers))

    def _wait_for_job(self, number: int, timeout: float) -> ClaimedJob | None:
        while self._jobs or not self._is_ended:
            if not self._wait(number, timeout):
                raise Empty
            with suppress(IndexError):  # Another thread has taken it.
                job = self._jobs.popleft()
                if self._jobs:
                    self._wake(1)
                return job
        return None

    def _wake(self, most: int) -> None:
        with self._lock:
            count = min(most, len(self._idle))
            woken = [heapq.heappop(self._idle) for _ in range(count)]
        for number in woken:
            self._wakers[number].release()

    def _wait(self, number: int, timeout: float) -> bool:
        """Wait, as thread `number`, for a job or `end`. Return False after `timeout` seconds."""
        with self._lock:
            # Under the lock: a caller that queues a job afterwards finds this thread idle.
            if self._jobs or self._is_ended:
                return True
            heapq.heappush(self._idle, number)
        return self._wakers[number].acquire(timeout=timeout) or self._is_woken(number)

    def _is_woken(self, number: int) -> bool:
        """Return True if this thread is being woken, else remove it from the idle threads."""
        with self._lock:
            if number in self._idle:
                self._idle.remove(number)
                heapq.heapify(self._idle)
                return False
        return self._wakers[number].acquire()  # Another thread releases it at this moment.
