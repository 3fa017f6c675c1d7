"""Search for a text in a bounded number of rows, because no index can serve it."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from pulljobs.storage.windows import IdSpan, IdWindow

SLICE: Final = 1_000
"""Number of rows that one statement compares with the text."""
ROWS: Final = 5_000
"""Number of compared rows after which a page ends."""
SECONDS: Final = 0.15
"""Seconds after which a page ends with the rows that are being compared."""


class Searched(NamedTuple):
    """Page of a search: its hits, and how far back rows were compared."""

    window: IdWindow
    rows: int
    """Rows that were compared."""
    back_to: int | None
    """Id below which the search goes on, or None if no older row is left."""


def search(
    read_window: Callable[[IdSpan], IdWindow],
    find_hits: Callable[[list[int]], set[int]],
    span: IdSpan,
) -> Searched:
    """Return the next hits, newest first, within bounds of hits, rows (ROWS) and time (SECONDS).

    `read_window` returns ids of candidates, and `find_hits` those of them that contain the text.
    """
    end = time.monotonic() + SECONDS
    hits: list[int] = []
    rows = 0
    # A window that few rows fit ends soon, so that the time is looked at often.
    at = span._replace(wanted=SLICE, scanned=SLICE)
    while True:
        window = read_window(at)
        matching = find_hits(window.ids) if window.ids else set()
        hits += [id for id in window.ids if id in matching]
        rows += len(window.ids)
        if len(hits) > span.wanted:
            last = hits[span.wanted - 1]
            return Searched(IdWindow(hits[: span.wanted], last), rows, last)
        if window.beyond is None or rows >= ROWS or time.monotonic() >= end:
            return Searched(IdWindow(hits, window.beyond), rows, window.beyond)
        at = at._replace(beyond=window.beyond)
