"""Upkeep of the rows of runs."""

from datetime import timedelta

from pulljobs.storage.forgetting import AT_ONCE
from pulljobs.storage.statements import run


def forget_runs(using: str, age: timedelta) -> int:
    """Delete a batch of runs that began longer ago than `age` and have ended. Return how many."""
    return len(run(using, "forget_runs", {"age": age, "wanted": AT_ONCE}))


def forget_signals(using: str, age: timedelta) -> int:
    """Delete a batch of signals to runs that ended before they began. Return how many."""
    return len(run(using, "forget_signals", {"age": age, "wanted": AT_ONCE}))
