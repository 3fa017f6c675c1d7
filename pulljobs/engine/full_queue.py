"""Notifications while the server has no room for them: NOTIFY fails then, and waiters poll."""

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from psycopg.errors import DiskFull, ProgramLimitExceeded

from pulljobs.engine.repeated_warnings import RepeatedWarning

logger = logging.getLogger("pulljobs.storage")

T = TypeVar("T")

WARNED_AGAIN: Final = 60.0
"""Seconds until a full queue or disk is logged again."""
WARNINGS: Final[dict[type[BaseException], str]] = {
    ProgramLimitExceeded: (
        "PostgreSQL's queue of notifications is full, so new jobs are found by polling only: end "
        "the session that has called LISTEN and stays in a transaction (see pg_stat_activity)."
    ),
    DiskFull: (
        "PostgreSQL can't store notifications, because its disk is full, so new jobs are found by "
        "polling only: free some space for its data directory."
    ),
}
_warning: Final = RepeatedWarning(logger, WARNED_AGAIN)


def notify(send: Callable[[], T]) -> T | None:
    """Call `send`, a transaction that sends notifications, and return its result.

    If the queue or the disk is full, log that once a minute and return None: the server has rolled
    back all that the transaction wrote.
    """
    try:
        return send()
    except Exception as error:
        # Django wraps errors of psycopg, and Spark's sessions do not.
        warning = WARNINGS.get(type(error.__cause__ or error))
        if warning is None:
            raise
        _warning.log(warning)
        return None
