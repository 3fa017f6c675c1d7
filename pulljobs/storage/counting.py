"""Counting of settlements by consumer and minute, so that pages need not read the archive.

Any process may count: it locks the row of `pulljobs_count_progress`. See docs/decisions/counts.md.
"""

from datetime import timedelta
from typing import Any, Final

from django.db import connections

from pulljobs import ids
from pulljobs.engine.sql import Row
from pulljobs.storage.statements import query, run
from pulljobs.storage.transactions import brief

INTERVAL: Final = timedelta(seconds=15)
"""Time between two counts, of all processes together."""
MARGIN: Final = timedelta(seconds=15)
"""Time by which the clock of the server may be set back between two counts."""
LARGE: Final = 100_000
"""Rows of an archive above which a worker leaves the first count to an operator."""
HIGHEST: Final = 2**63 - 1
KEPT: Final = {
    "minute": (timedelta(minutes=1), timedelta(hours=3)),
    "hour": (timedelta(hours=1), timedelta(days=9)),
    "day": (timedelta(days=1), timedelta(days=400)),
}
"""Width of each period, and the age at which its counts are deleted."""


def count_settlements(using: str, *, is_patient: bool = False) -> int:
    """Add the settlements since the last count to the counts and return their number.

    Return 0 if the last count is younger than 15 seconds or a large archive has to be counted
    whole, unless `is_patient`. Return 0 if another process counts, and inside the caller's
    transaction.
    """
    if connections[using].in_atomic_block:
        return 0
    progress = read_progress(using)
    if progress is None:
        run(using, "begin_counts", {})
        progress = read_progress(using)
    if not is_patient and not _is_due(using, progress):
        return 0
    with brief(using):
        for locked in run(using, "lock_counts", {}):
            widths, ages = zip(*KEPT.values(), strict=True)
            kept = {"periods": list(KEPT), "widths": list(widths), "ages": list(ages)}
            [row] = run(using, "count_settlements", bounds(locked) | kept)
            return int(row.settlements)
    return 0


def _is_due(using: str, progress: Row) -> bool:
    if progress.is_recount:
        many = "SELECT EXISTS (SELECT FROM pulljobs_archived_job OFFSET %s) AS is_large"
        [archive] = query(using, many, [LARGE])
        return not archive.is_large
    return not progress.counted_at <= progress.now < progress.counted_at + INTERVAL


def read_progress(using: str) -> Row | None:
    """Return the row of `pulljobs_count_progress`, or None before the first count."""
    return next(iter(run(using, "progress_of_counts", {})), None)


def bounds(
    progress: Row | None, reach: timedelta | None = None, cap: int | None = None
) -> dict[str, Any]:
    """Return the parameters with which a statement finds settlements that are not counted yet.

    `progress` comes from `read_progress`. Before the first count or a recount, all settlements are
    meant. Else those older than `reach` before the last count are left out. `cap` bounds their
    number.
    """
    low, is_recount = 0, True
    if progress is not None and not progress.is_recount:
        is_recount = False
        since = progress.open_from
        if reach is not None:
            since = max(since, progress.counted_at - reach)
        low = ids.first_of(min(since, progress.now) - MARGIN)
    return {"low": low, "high": HIGHEST, "cap": cap, "is_recount": is_recount}


def recount(using: str) -> None:
    """Make the next count read the whole archive, and replace the stored counts of its times."""
    query(using, "UPDATE pulljobs_count_progress SET snapshot = NULL")


def forget(using: str) -> None:
    """Delete counts of minutes, hours and days that are too old to be shown on pages."""
    for period, (_width, age) in KEPT.items():
        query(
            using,
            "DELETE FROM pulljobs_settlement_count"
            " WHERE period = %s AND starts_at < clock_timestamp() - %s",
            [period, age],
        )
