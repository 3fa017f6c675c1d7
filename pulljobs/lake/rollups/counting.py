"""Sources of a count of hours, and the interface of what counts: Spark or this process."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from pulljobs.lake.rollups import hours
from pulljobs.lake.rollups.counts import Rows, Sketches
from pulljobs.lake.rollups.hours import Span, TableSnapshot
from pulljobs.lake.rollups.published import Audience
from pulljobs.lake.spark.tables import LoggedFile, Table

SETTLED_COLUMNS: Final = (
    "id", "job_id", "consumer_id", "node_id", "state", "reason", "error", "created_at",
    "claimed_at", "settled_at", "run_seconds", "retry_count", "deliveries",
)  # fmt: skip
DEATH_COLUMNS: Final = ("id", "job_id", "state")
PUBLISHED_COLUMNS: Final = ("channel_id", "published_at", "key")


@dataclass(frozen=True, slots=True)
class Sources:
    """Files that a count of hours reads. They have rows of other hours, too."""

    hours: set[datetime]
    archive: Table
    settled: Sequence[LoggedFile]
    deaths: Sequence[LoggedFile]
    """Files with the settlements since the oldest of these jobs was created."""
    messages: Table
    published: Sequence[LoggedFile]

    @classmethod
    def choose(
        cls, touched: set[datetime], archive: TableSnapshot, messages: TableSnapshot
    ) -> "Sources":
        spans = hours.spans(touched)
        settled = archive.during(spans)
        created = [first for first, _last in hours.list_ranges(settled, "created_at")]
        deaths = [file for file in archive.files if created and file.day >= min(created).date()]
        published = messages.during(spans)
        return cls(touched, archive.table, settled, deaths, messages.table, published)

    @property
    def spans(self) -> list[Span]:
        return hours.spans(self.hours)


class Counter(Protocol):
    """Interface of what counts rows of the lake and merges sketches."""

    def count(self, sources: Sources, audience: Audience) -> Rows:
        """Count the settlements and publishes of the hours by consumer and hour."""

    def merge(self, members: Sequence[Sequence[Sketches]]) -> dict[int, Sketches]:
        """Merge the sketches of each member, and return them by position in the list."""

    def list_hours(
        self, table: Table, files: Sequence[LoggedFile], event: str, low_xid: int
    ) -> set[datetime]:
        """Return the hours of the rows that this transaction or later ones wrote."""
