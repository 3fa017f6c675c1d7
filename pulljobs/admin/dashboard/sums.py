"""Counts of what several consumers have, as they are told."""

from collections.abc import Sequence
from dataclasses import dataclass

from pulljobs.admin.dashboard import figures
from pulljobs.admin.dashboard.consumers import Standing


@dataclass(frozen=True)
class Sum:
    value: int
    is_least: bool
    """Some count was cut off, so there is more."""

    def __str__(self) -> str:
        return figures.counted(self.value, is_least=self.is_least)


def total(standings: Sequence[Standing], count: str) -> Sum:
    """Of all of them."""
    return Sum(
        sum(getattr(one.backlog, count) for one in standings),
        any(one.backlog.is_least(count) for one in standings),
    )
