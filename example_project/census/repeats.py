"""Schedule that begins another census from time to time while `demo --serve` runs."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Final

from example_project.census.pull_handlers import REPEATS
from pulljobs import schedules
from pulljobs.errors import UnknownSchedule

NAME: Final = "census"


@contextmanager
def repeated(every: timedelta, limit: int | None) -> Iterator[None]:
    """Create the schedule, and delete it after the block. A census has at most `limit` files."""
    schedules.create(NAME, REPEATS, {"limit": limit}, every=every, overlap="skip")
    try:
        yield
    finally:
        end()


def end() -> None:
    """Delete the schedule if it exists, for example after an earlier demo was killed."""
    with suppress(UnknownSchedule):
        schedules.delete(NAME)
