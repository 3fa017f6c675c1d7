"""Times and order of the faults."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from benchmarks.faults.plan import Plan
from benchmarks.faults.progress import Progress

LOOK: Final = 0.02
STALLED: Final = 60.0
"""Seconds without a delivery after which no delivery is expected any more."""


def fault_times(plan: Plan, progress: Progress, is_over: Callable[[], bool]) -> Iterator[None]:
    """Yield when a fault is due, until the plan's faults or minutes are over, or `is_over`."""
    if plan.jobs is not None and plan.times is not None:
        yield from _by_progress(plan.jobs, plan.times, progress)
        return
    end = None if plan.minutes is None else time.monotonic() + plan.minutes * 60
    done = 0
    while done != plan.times and not is_over() and (end is None or time.monotonic() < end):
        if progress.update():  # No fault before the first delivery.
            time.sleep(plan.every * random.uniform(0.7, 1.3))
            yield
            done += 1
        else:
            time.sleep(LOOK)
    time.sleep(plan.every)  # Processes recover from the last fault, too.


def _by_progress(jobs: int, times: int, progress: Progress) -> Iterator[None]:
    for number in range(1, times + 1):
        while progress.update() < jobs * number / (times + 1) and progress.stalled_for < STALLED:
            time.sleep(LOOK)
        yield


def shuffle_forever(names: Sequence[str]) -> Iterator[str]:
    """Yield all names in random order, again and again."""
    while names:
        yield from random.sample(names, len(names))
