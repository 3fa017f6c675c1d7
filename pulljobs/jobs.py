"""Looking at one job from code that waits for it."""

import time
from collections.abc import Iterator
from typing import Final

from django.db import connections

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.errors import PulljobsError, UnknownJob
from pulljobs.states import SETTLED
from pulljobs.storage import archive
from pulljobs.storage.rows import JobView

FIRST_PAUSE: Final = 0.01
LONGEST_PAUSE: Final = 0.5


def get(id: int | str) -> JobView:
    """The job as it stands, live or archived; raise UnknownJob if it is neither.

    Its id as a number, or as the API, the admin and commands show it.
    """
    number = ids.number_of(id) if isinstance(id, str) else id
    view = archive.find(settings().DATABASE, number)
    if view is None:
        raise UnknownJob(number)
    return view


def wait(id: int | str, timeout: float) -> JobView | None:
    """The job once it is DELIVERED or DEAD; None after `timeout` seconds.

    Not inside a transaction: it would never see the settlement, and hold the job's commit back.
    """
    if connections[settings().DATABASE].in_atomic_block:
        raise PulljobsError(
            "jobs.wait() can't see a commit from inside a transaction: leave it first."
        )
    for _pause in _pauses(timeout):
        view = get(id)
        if view.state in SETTLED:
            return view
    return None


def _pauses(timeout: float) -> Iterator[float]:
    """Sleep between looks, longer and longer, until the timeout; the last look is at its end."""
    deadline, pause = time.monotonic() + timeout, FIRST_PAUSE
    while True:
        yield pause
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, LONGEST_PAUSE)
