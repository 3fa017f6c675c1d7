"""Looking up a job by its id, and waiting for its settlement."""

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
    """Return the job, live or archived, or raise UnknownJob if it is neither.

    The id is a number, or the text that the API, the admin and commands show.
    """
    number = ids.number_of(id) if isinstance(id, str) else id
    view = archive.find(settings().DATABASE, number)
    if view is None:
        raise UnknownJob(number)
    return view


def wait(id: int | str, timeout: float) -> JobView | None:
    """Wait for the job to be DELIVERED or DEAD and return it, or None after `timeout` seconds.

    Raise PulljobsError inside a transaction, which would never see the settlement.
    """
    if connections[settings().DATABASE].in_atomic_block:
        raise PulljobsError(
            "jobs.wait() can't see a commit from inside a transaction: leave it first."
        )
    for _pause in pauses(timeout):
        view = get(id)
        if view.state in SETTLED:
            return view
    return None


def pauses(timeout: float) -> Iterator[float]:
    """Sleep between look-ups, longer each time, until the timeout, and yield a last time then."""
    deadline, pause = time.monotonic() + timeout, FIRST_PAUSE
    while True:
        yield pause
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, LONGEST_PAUSE)
