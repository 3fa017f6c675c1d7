"""How all stands at one moment: bounded reads, each of which may fail alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from django.db import DatabaseError, InterfaceError, connections

from pulljobs.admin.dashboard import attention, consumers, history, upkeep, workers
from pulljobs.admin.dashboard.attention import Attention
from pulljobs.admin.dashboard.consumers import ConsumerStatus
from pulljobs.admin.dashboard.history import History
from pulljobs.admin.dashboard.reading import PATIENCE, Part
from pulljobs.admin.dashboard.workers import Worker
from pulljobs.conf import settings
from pulljobs.models import Consumer
from pulljobs.storage import nodes
from pulljobs.storage.reading import Reading, describe, impatient
from pulljobs.storage.recent import Slice

STEP: Final = timedelta(seconds=5)
STEPS: Final = 12
"""Of the trend; a minute, of which the archive gives a bounded number of rows."""
ESTIMATED: Final = 200
"""Consumers of which it is estimated what can't be counted, the first by name."""
LATELY: Final = 2
"""Steps that a rate is of."""
Among = Callable[[], Sequence[Consumer]]


@dataclass(frozen=True, kw_only=True)
class TopFrame:
    at: datetime
    lately: History
    workers: Sequence[Worker] = ()
    standings: Sequence[ConsumerStatus] = ()
    findings: Sequence[Attention] = ()
    missed: Sequence[Part] = ()
    """What the database did not tell."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why, of those that were not only late."""
    failure: str = ""
    """The database can't be asked, for this reason: nothing is known."""

    @property
    def error(self) -> str:
        """Why the database can't be asked, or refused the first part; empty: neither."""
        return self.failure or next(iter(self.refused.values()), "")

    def rate(self, consumer: Consumer | None = None) -> float:
        """Settled by a second, of late; None: of all."""
        if consumer is None:
            settled = [point.settled for point in self.lately.points]
        else:
            settled = self.trend(consumer)
        return sum(settled[-LATELY:]) / (LATELY * STEP.total_seconds())

    def trend(self, consumer: Consumer) -> list[float]:
        return self.lately.trends.get(consumer.pk, [0.0] * STEPS)


def read(among: Among | None = None) -> TopFrame:
    """Of all consumers, or of those that this finds; what the database does not tell is missing."""
    using = settings().DATABASE
    try:
        with impatient(using, PATIENCE) as reading:
            return _read(reading, nodes.clock(using), among)
    except (DatabaseError, InterfaceError) as error:
        connections[using].close()
        now = datetime.now(UTC)
        return TopFrame(at=now, lately=_empty(now), failure=describe(error))


def _read(reading: Reading, at: datetime, among: Among | None) -> TopFrame:
    known: list[Worker] | None = reading.part(Part.WORKERS, lambda: workers.read_workers(at), None)
    none: list[ConsumerStatus] = []
    standings = reading.part(
        Part.CONSUMERS,
        lambda: consumers.read_standings(at, known, among() if among else None, ESTIMATED),
        none,
    )
    return TopFrame(
        at=at,
        workers=known or [],
        standings=standings,
        lately=reading.part(
            Part.THROUGHPUT, lambda: history.read_archive(_slices(at), STEP), _empty(at)
        ),
        findings=_findings(reading, at, standings, known or []),
        missed=[Part(one) for one in reading.missed],
        refused=reading.refused,
    )


def _findings(
    reading: Reading, at: datetime, standings: Sequence[ConsumerStatus], known: Sequence[Worker]
) -> list[Attention]:
    found = [*attention.check_consumers(standings), *attention.check_workers(known)]
    found += attention.check_snapshots(reading.part(Part.SNAPSHOTS, upkeep.read_snapshots, []))
    found += attention.check_tables(reading.part(Part.TABLES, lambda: upkeep.read_tables(at), []))
    partitions = reading.part(Part.PARTITIONS, lambda: upkeep.read_partitions(at), None)
    if partitions is not None:
        found += attention.check_partitions(partitions)
    return attention.rank(found)


def _slices(at: datetime) -> list[Slice]:
    starts = [at - back * STEP for back in range(STEPS, 0, -1)]
    return [Slice(start, start + STEP) for start in starts]


def _empty(at: datetime) -> History:
    return history.make_empty(_slices(at), STEP)
