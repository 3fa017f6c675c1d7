"""Notifications while the server's queue of them is full: NOTIFY fails then, and waiters poll."""

import logging
import math
import time
from collections.abc import Callable
from typing import Final

from django.db import OperationalError
from psycopg import errors

logger = logging.getLogger("pulljobs.storage")

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


def notify(send: Callable[[], object]) -> None:
    """Send notifications by `send`. If the queue is full, log that once a minute and send none."""
    try:
        send()
    except OperationalError as error:
        if not isinstance(error.__cause__, errors.ProgramLimitExceeded):
            raise
        _warning.log()
