"""Frame (one reading) of `pulljobs top`: status of consumers, nodes and tables at one time.

Each part, such as that of nodes, is read within a time limit. If one fails, others are still read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from django.db import DatabaseError, InterfaceError, connections

from pulljobs.admin.dashboard import attention, consumer_status, history, upkeep, workers
from pulljobs.admin.dashboard.attention import Attention
from pulljobs.admin.dashboard.consumer_status import ConsumerStatus
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
"""Number of time steps of the trend: it covers one minute."""
ESTIMATED: Final = 200
"""Maximum number of consumers, by name, whose counts above the cap are estimated."""
RATE_STEPS: Final = 2
"""Number of the latest time steps over which a rate is averaged."""
ConsumerSelector = Callable[[], Sequence[Consumer]]


@dataclass(frozen=True, kw_only=True)
class TopFrame:
    """Status of consumers and nodes at one time.

    Each `Part` is read by itself. Those that could not be read are empty, and named in `missed`.
    """

    at: datetime
    throughput: History
    workers: Sequence[Worker] = ()
    consumers: Sequence[ConsumerStatus] = ()
    problems: Sequence[Attention] = ()
    missed: Sequence[Part] = ()
    """Names of what could not be read, such as workers or dead jobs."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Reason for each of `missed` that failed by an error. The others took too long."""
    failure: str = ""
    """Reason why the database cannot be reached. Nothing else is known then."""

    @property
    def error(self) -> str:
        """Reason why the database can't be reached or refused a query, or an empty text."""
        return self.failure or next(iter(self.refused.values()), "")

    def rate(self, consumer: Consumer | None = None) -> float:
        """Return the settlements per second in the last ten seconds, of one or all consumers."""
        if consumer is None:
            settled = [point.settled for point in self.throughput.points]
        else:
            settled = self.trend(consumer)
        return sum(settled[-RATE_STEPS:]) / (RATE_STEPS * STEP.total_seconds())

    def trend(self, consumer: Consumer) -> list[float]:
        """Return a consumer's settlements in each five seconds of the last minute, in order."""
        return self.throughput.trends.get(consumer.pk, [0.0] * STEPS)


def read_frame(select_consumers: ConsumerSelector | None = None) -> TopFrame:
    """Read the status of all consumers, or of those that the selector returns, and of all nodes.

    Each query has a time limit. Parts that failed are named in `missed`. No error is raised if the
    database cannot be reached: the frame then has the reason in `failure`.
    """
    using = settings().DATABASE
    try:
        with impatient(using, PATIENCE) as reading:
            return _read_parts(reading, nodes.clock(using), select_consumers)
    except (DatabaseError, InterfaceError) as error:
        connections[using].close()
        now = datetime.now(UTC)
        return TopFrame(at=now, throughput=_empty_history(now), failure=describe(error))


def _read_parts(
    reading: Reading, at: datetime, select_consumers: ConsumerSelector | None
) -> TopFrame:
    known: list[Worker] | None = reading.part(Part.WORKERS, lambda: workers.read_workers(at), None)
    none: list[ConsumerStatus] = []
    statuses = reading.part(
        Part.CONSUMERS,
        lambda: consumer_status.read_statuses(
            at, known, select_consumers() if select_consumers else None, ESTIMATED
        ),
        none,
    )
    return TopFrame(
        at=at,
        workers=known or [],
        consumers=statuses,
        throughput=reading.part(
            Part.THROUGHPUT, lambda: history.read_archive(_slices(at), STEP), _empty_history(at)
        ),
        problems=_read_problems(reading, at, statuses, known or []),
        missed=[Part(part) for part in reading.missed],
        refused=reading.refused,
    )


def _read_problems(
    reading: Reading, at: datetime, statuses: Sequence[ConsumerStatus], known: Sequence[Worker]
) -> list[Attention]:
    problems = [*attention.check_consumers(statuses), *attention.check_workers(known)]
    problems += attention.check_snapshots(reading.part(Part.SNAPSHOTS, upkeep.read_snapshots, []))
    problems += attention.check_tables(
        reading.part(Part.TABLES, lambda: upkeep.read_tables(at), [])
    )
    partitions = reading.part(Part.PARTITIONS, lambda: upkeep.read_partitions(at), None)
    if partitions is not None:
        problems += attention.check_partitions(partitions)
    return attention.rank(problems)


def _slices(at: datetime) -> list[Slice]:
    starts = [at - back * STEP for back in range(STEPS, 0, -1)]
    return [Slice(start, start + STEP) for start in starts]


def _empty_history(at: datetime) -> History:
    return history.make_empty(_slices(at), STEP)


ALL: Final = 10_000


@dataclass(frozen=True)
class ViewSize:
    """Space on the screen: maximum number of rows in each table, and whether it is wide.

    Trends are shown only in a wide space.
    """

    consumers: int = ALL
    nodes: int = ALL
    problems: int = ALL
    is_wide: bool = True


def empty_text(frame: TopFrame, part: Part, otherwise: str) -> str:
    """Return the text for an empty table: `otherwise`, or "not known" if `part` was not read."""
    return "It is not known." if part in frame.missed else otherwise
