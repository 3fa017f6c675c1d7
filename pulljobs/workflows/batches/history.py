"""Deletion of outdated batches."""

from datetime import timedelta
from typing import Final

from pulljobs.storage.statements import run

AT_ONCE: Final = 100
"""Largest number of batches deleted at once. Each may have thousands of rows of BatchPart."""


def forget_batches(using: str, age: timedelta) -> int:
    """Delete up to `AT_ONCE` batches that ended longer than `age` ago. Return their number.

    A batch stays as long as the batch that contains it.
    """
    return len(run(using, "forget_ended_batches", {"age": age, "wanted": AT_ONCE}))
