"""Wait of a stream for jobs, by notifications and polling."""

import time
from datetime import timedelta
from typing import Any, Final

import psycopg

from pulljobs.engine.sql import DATABASE_CHANNEL
from pyspark_pulljobs.connecting import connect
from pyspark_pulljobs.ownership import Owned
from pyspark_pulljobs.session import Session

POLL: Final = timedelta(seconds=1)
"""Interval of polling, which guarantees progress; notifications only shorten the wait."""
REGISTERED: Final = timedelta(seconds=10)


class Waiting:
    """Listener with its own connection, which publishes notify."""

    def __init__(self, dsn: str, owned: Owned) -> None:
        self._dsn, self._owned = dsn, owned
        self._registered_until = 0.0
        self._listening: psycopg.Connection[Any] | None = None

    def register(self, session: Session) -> bool:
        """Register as a waiter; if it returns True, the caller claims once more before it waits."""
        now, is_new = time.monotonic(), self._listening is None
        if is_new:
            self._listening = connect(self._dsn)
            self._listening.execute(f"LISTEN {DATABASE_CHANNEL}")
        if is_new or now > self._registered_until - REGISTERED.total_seconds() / 2:
            session.run("wait", self._params())
            is_new = is_new or now > self._registered_until
            self._registered_until = now + REGISTERED.total_seconds()
        return is_new

    def is_woken(self, patience: timedelta | None) -> bool:
        """Wait until the next poll or for `patience`; return True if jobs came or became due."""
        seconds = min(POLL, patience or POLL).total_seconds()
        if self._heard(time.monotonic() + seconds):
            return True
        return patience is not None and patience <= POLL

    def close(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def _heard(self, until: float) -> bool:
        assert self._listening is not None
        ours = str(self._owned.consumer_id)
        while (left := until - time.monotonic()) > 0:
            for notification in self._listening.notifies(timeout=left, stop_after=1):
                if notification.payload == ours:
                    return True
        return False

    def _params(self) -> dict[str, Any]:
        return {
            "consumer_ids": [self._owned.consumer_id],
            "pulls": [0],
            "node_id": self._owned.node_id,
            "patience": REGISTERED,
        }
