"""Looking up a job by its id, and waiting for its settlement."""

import time
from collections.abc import Iterator
from datetime import timedelta
from math import isnan
from typing import Final

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.errors import PulljobsError, UnknownJob
from pulljobs.states import SETTLED
from pulljobs.storage import archive
from pulljobs.storage.rows import JobView
from pulljobs.storage.sessions import in_transaction

FIRST_PAUSE: Final = 0.01
LONGEST_PAUSE: Final = 0.5


def get(id: int | str) -> JobView:
    """Return the job, live or archived, or raise UnknownJob if it is neither.

    The id is a number, or the text that the API, the admin and commands show. Raise ValueError for
    other text.
    """
    number = ids.number_of(id) if isinstance(id, str) else id
    is_possible = ids.find_number(number) is not None
    view = archive.find(settings().DATABASE, number) if is_possible else None
    if view is None:
        raise UnknownJob(number)
    return view


def wait(id: int | str, timeout: float | timedelta) -> JobView | None:
    """Wait for the job to be DELIVERED or DEAD and return it, or None after `timeout`.

    A number as `timeout` is in seconds. Raise what `get` raises, and PulljobsError inside a
    transaction, which would never see the settlement.
    """
    if in_transaction(settings().DATABASE):
        raise PulljobsError(
            "jobs.wait() can't see a commit from inside a transaction: leave it first."
        )
    for _pause in pauses(timeout):
        view = get(id)
        if view.state in SETTLED:
            return view
    return None


def pauses(timeout: float | timedelta) -> Iterator[float]:
    """Yield when a polling caller should check its condition, the last time after `timeout`.

    The generator sleeps between two yields, for pauses that grow. Each item is the length of the
    pause that follows, in seconds.
    """
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if not isinstance(seconds, int | float) or isnan(seconds):
        raise ValueError(f"timeout must be seconds or a timedelta, not {timeout!r}.")
    deadline, pause = time.monotonic() + seconds, FIRST_PAUSE
    while True:
        yield pause
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, LONGEST_PAUSE)
