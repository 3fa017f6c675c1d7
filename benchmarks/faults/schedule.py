"""When things break, and which."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from benchmarks.faults.plan import Plan
from benchmarks.faults.progress import Progress

LOOK: Final = 0.02
STALLED: Final = 60.0
"""Seconds without a delivery after which nothing more will come."""


def moments(plan: Plan, progress: Progress, is_over: Callable[[], bool]) -> Iterator[None]:
    """Returns at each time for a fault: `times` of them, or until `is_over`."""
    if plan.jobs is not None and plan.times is not None:
        yield from _by_progress(plan.jobs, plan.times, progress)
        return
    end = None if plan.minutes is None else time.monotonic() + plan.minutes * 60
    done = 0
    while done != plan.times and not is_over() and (end is None or time.monotonic() < end):
        if progress.look():  # Not before somebody is at work.
            time.sleep(plan.every * random.uniform(0.7, 1.3))
            yield
            done += 1
        else:
            time.sleep(LOOK)
    time.sleep(plan.every)  # The last one, too, is seen to be over.


def _by_progress(jobs: int, times: int, progress: Progress) -> Iterator[None]:
    for number in range(1, times + 1):
        while progress.look() < jobs * number / (times + 1) and progress.stalled_for < STALLED:
            time.sleep(LOOK)
        yield


def in_turn(names: Sequence[str]) -> Iterator[str]:
    """All of them in some order, again and again."""
    while names:
        yield from random.sample(names, len(names))
