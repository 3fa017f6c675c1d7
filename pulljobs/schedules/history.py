"""Deletion of records of slots that are older than the retention."""

from datetime import timedelta

from pulljobs.storage.forgetting import AT_ONCE
from pulljobs.storage.statements import run


def forget_slots(using: str, age: timedelta) -> int:
    """Delete up to `AT_ONCE` records of slots that are older than `age`. Return their number.

    The age of a record that a backfill wrote counts from the backfill on.
    """
    return len(run(using, "forget_slots", {"age": age, "wanted": AT_ONCE}))
