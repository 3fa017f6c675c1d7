"""Settlements over time for charts: stored counts, and the archive for what is not counted yet."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from pulljobs import ids
from pulljobs.engine.sql import Row
from pulljobs.models.counts import ALL_CONSUMERS
from pulljobs.storage import counting
from pulljobs.storage.statements import run

UNCOUNTED: Final = 100_000
"""Maximum number of settlements read that no process has counted yet. Usually they are few."""
REACH: Final = timedelta(minutes=2)
"""Time that ends with the last count, for which the archive is read again.

The settlements of a transaction that was open for longer show once they are counted.
"""
PACE: Final = timedelta(minutes=1)
LATEST: Final = 200_000
"""Maximum number of settlements read of the last minute. If there are more, less time is read."""


class CountSpan(NamedTuple):
    """Range of time for which `read_counts` reads the counts of each minute, hour or day."""

    period: str
    since: datetime
    until: datetime
    is_drawn: bool
    """True for counts of the consumer in the chart, False for those of consumers in the list."""
    with_times: bool
    """True to read the histograms of times as well."""


class StoredCounts(NamedTuple):
    """Result of `read_counts`: counts of settlements, and the times for which they are complete."""

    rows: Sequence[Row]
    """Rows of settlement_history.sql."""
    counted_from: datetime | None
    """Time from which settlements are counted, or None if the archive was read from its start."""
    known_until: datetime | None
    """Time of the last settlement that was read, or None if all were read."""


def read_counts(
    using: str, spans: Sequence[CountSpan], drawn: int | None, listed: Collection[int]
) -> StoredCounts:
    """Return the stored counts of the spans, and the settlements that are not counted yet.

    `drawn` is the id of the consumer in the chart, or None for sums over all consumers. `listed`
    are the ids of the consumers in the list below it.
    """
    progress = counting.read_progress(using)
    params = {
        "periods": [span.period for span in spans],
        "since": [span.since for span in spans],
        "until": [span.until for span in spans],
        "are_drawn": [span.is_drawn for span in spans],
        "with_times": [span.with_times for span in spans],
        "drawn_ids": [ALL_CONSUMERS if drawn is None else drawn],
        "listed_ids": list(listed),
    }
    bounds = counting.bounds(progress, REACH, UNCOUNTED)
    rows = run(using, "settlement_history", params | bounds)
    late = [row for row in rows if row.span is None]
    is_behind = sum(row.delivered + row.dead for row in late) >= UNCOUNTED
    return StoredCounts(
        rows,
        counted_from=progress.counted_from if progress and not progress.is_recount else None,
        known_until=late[0].last_settled_at if is_behind else None,
    )


class Pace(NamedTuple):
    """Numbers of settlements in the last `seconds`, up to a minute."""

    seconds: float
    settled: dict[int, int]
    """Number of settlements by consumer id."""

    @property
    def is_estimate(self) -> bool:
        """True if a minute had too many settlements to read, so that `seconds` is less."""
        return self.seconds < PACE.total_seconds()

    def per_minute(self, consumer_id: int | None = None) -> float:
        """Return the settlements per minute of a consumer, or of all consumers for None."""
        settled = (
            sum(self.settled.values()) if consumer_id is None else self.settled.get(consumer_id, 0)
        )
        return settled * 60 / self.seconds


def read_pace(using: str, now: datetime) -> Pace:
    """Count the settlements of the last minute by consumer, at most the newest LATEST of them."""
    since = now - PACE
    params = {
        "low": ids.first_of(since - counting.MARGIN),
        "high": counting.HIGHEST,
        "since": since,
        "cap": LATEST,
    }
    rows = run(using, "settled_since", params)
    settled = {row.consumer_id: row.settled for row in rows}
    seconds = PACE.total_seconds()
    if sum(settled.values()) >= LATEST:
        seconds = max(1.0, (now - rows[0].oldest).total_seconds())
    return Pace(seconds, settled)
