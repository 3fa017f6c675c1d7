"""Notifications while the server's queue of them is full: NOTIFY fails then, and waiters poll."""

import logging
import math
import time
from collections.abc import Callable
from typing import Final, TypeVar

from psycopg.errors import ProgramLimitExceeded

logger = logging.getLogger("pulljobs.storage")

T = TypeVar("T")

WARNED_AGAIN: Final = 60.0
"""Seconds until a full queue is logged again."""
FULL: Final = (
    "PostgreSQL's queue of notifications is full, so new jobs are found by polling only: end the "
    "session that has called LISTEN and stays in a transaction (see pg_stat_activity)."
)


class _Warning:
    _logged_at = -math.inf

    def log(self) -> None:
        if time.monotonic() - self._logged_at >= WARNED_AGAIN:
            self._logged_at = time.monotonic()
            logger.warning(FULL)


_warning: Final = _Warning()


def notify(send: Callable[[], T]) -> T | None:
    """Call `send`, a transaction that sends notifications, and return its result.

    If the queue is full, log that once a minute and return None: the server has rolled back all
    that the transaction wrote.
    """
    try:
        return send()
    except Exception as error:
        # Django wraps errors of psycopg, and Spark's sessions do not.
        if not isinstance(error.__cause__ or error, ProgramLimitExceeded):
            raise
        _warning.log()
        return None
