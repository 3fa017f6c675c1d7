"""Counts of one consumer in one hour, day or month."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

from pulljobs.lake.models.rollups import MEASURES

ADDED: Final = (
    "published",
    "delivered",
    "dead",
    "retries",
    "redeliveries",
    "duplicates",
    "settled_again",
    "run_seconds",
)
KEPT_ERRORS: Final = 50
"""Number of errors that a rollup keeps, the most frequent ones."""
KEPT_KEYS: Final = 20
"""Number of keys that a rollup keeps, the most frequent ones."""
KLL: Final = 400
"""Size of a sketch: in 99 of 100 the rank error of a quantile is at most 0.7 %."""
TRACKED_KEYS: Final = 1024
T = TypeVar("T")


class Key(NamedTuple):
    """Consumer and start of an hour, day or month, which identify its counts."""

    consumer_id: int
    starts_at: datetime


class Error(NamedTuple):
    jobs: int
    sample: str
    sample_job: int


class Cost(NamedTuple):
    jobs: int = 0
    dead: int = 0
    run_seconds: float = 0.0

    def plus(self, other: "Cost") -> "Cost":
        return Cost(
            self.jobs + other.jobs,
            self.dead + other.dead,
            self.run_seconds + other.run_seconds,
        )


@dataclass(slots=True)
class Sketches:
    """Sketches of the wait, run and total times and of the keys, or None where none are known."""

    wait: bytes | None = None
    run: bytes | None = None
    total: bytes | None = None
    keys: bytes | None = None
    quantiles: dict[str, list[float] | None] = field(default_factory=dict)
    """Seconds by measure, in the order of `models.rollups.QUANTILES`."""
    hot_keys: list[tuple[str, int]] = field(default_factory=list)

    def take_keys(self, other: "Sketches") -> None:
        self.keys, self.hot_keys = other.keys, other.hot_keys


@dataclass(slots=True, kw_only=True)
class Counts:
    """Counts of one consumer in one period, with the fields of the model `Rollup`."""

    published: int = 0
    delivered: int = 0
    dead: int = 0
    retries: int = 0
    redeliveries: int = 0
    duplicates: int = 0
    settled_again: int = 0
    run_seconds: float = 0.0
    first_settled_at: datetime | None = None
    last_settled_at: datetime | None = None
    slowest: tuple[float, int] | None = None
    """Seconds of the slowest job, and its id."""
    reasons: Counter[str] = field(default_factory=Counter)
    errors: dict[tuple[str, str], Error] = field(default_factory=dict)
    """Errors by fingerprint and reason."""
    nodes: dict[str | None, Cost] = field(default_factory=dict)
    sketches: Sketches = field(default_factory=Sketches)

    def add(self, other: "Counts") -> None:
        """Add other counts to these. Sketches are left out, because a `Counter` merges them."""
        for name in ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.reasons.update(other.reasons)
        self.first_settled_at = min(
            _known(self.first_settled_at, other.first_settled_at), default=None
        )
        self.last_settled_at = max(
            _known(self.last_settled_at, other.last_settled_at), default=None
        )
        self.slowest = max(_known(self.slowest, other.slowest), default=None)
        for node, cost in other.nodes.items():
            self.nodes[node] = self.nodes.get(node, Cost()).plus(cost)
        for shape, error in other.errors.items():
            before = self.errors.get(shape)
            self.errors[shape] = error._replace(jobs=error.jobs + (before.jobs if before else 0))

    def worst_errors(self) -> Iterable[tuple[tuple[str, str], Error]]:
        """Return the `KEPT_ERRORS` most frequent errors, by fingerprint and reason."""
        ordered = sorted(self.errors.items(), key=lambda item: (-item[1].jobs, item[0]))
        return ordered[:KEPT_ERRORS]


Rows = dict[Key, Counts]
"""Counts by consumer and start of the period."""


def measured(sketches: Sketches) -> Iterator[tuple[str, bytes | None]]:
    for measure in MEASURES:
        yield measure, getattr(sketches, measure)


def _known(*values: T | None) -> list[T]:
    return [value for value in values if value is not None]
