"""Files for a count of hours, and the interface of its two implementations."""

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
    """Files of the lake that a count of some hours reads. They also have rows of other hours."""

    hours: set[datetime]
    archive: Table
    settled: Sequence[LoggedFile]
    """Files with the settlements of the hours."""
    deaths: Sequence[LoggedFile]
    """Files with all settlements since the oldest job of `settled` was created.

    They show which of these jobs had been DEAD before.
    """
    messages: Table
    published: Sequence[LoggedFile]
    """Files with the messages that were published in the hours."""

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
    """Interface of a counter: it counts rows of the lake by hour, and merges sketches."""

    def count(self, sources: Sources, audience: Audience) -> Rows:
        """Return the counts of settlements and messages by consumer and hour."""

    def merge(self, members: Sequence[Sequence[Sketches]]) -> dict[int, Sketches]:
        """Merge the sketches of each list in `members`. Return the results by index of the list."""

    def list_hours(
        self, table: Table, files: Sequence[LoggedFile], event: str, low_xid: int
    ) -> set[datetime]:
        """Return the hours in which rows of these files were settled or published.

        `event` is "settled" or "published". Only rows are considered that the transaction `low_xid`
        or a later one wrote.
        """
