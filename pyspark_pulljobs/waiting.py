"""Wait of a stream's Spark driver for jobs, by notifications of PostgreSQL and by polling."""

import time
from datetime import timedelta
from typing import Any, Final

import psycopg

from pulljobs.engine.sql import DATABASE_CHANNEL
from pyspark_pulljobs.connecting import connect
from pyspark_pulljobs.database_session import BRIEF_SECONDS, Session
from pyspark_pulljobs.ownership import Owned

POLL: Final = timedelta(seconds=1)
"""Interval of polling, which guarantees progress. Notifications only shorten the wait."""
REGISTRATION: Final = timedelta(seconds=10)
"""Time for which publishes notify a stream after it has registered."""


class Listener:
    """Listener to notifications of new jobs of the stream's consumer, on its own connection."""

    def __init__(self, dsn: str, owned: Owned) -> None:
        self._dsn, self._owned = dsn, owned
        self._registered_until = 0.0
        self._connection: psycopg.Connection[Any] | None = None

    def register(self, session: Session) -> bool:
        """Register as a waiter. Return True if the stream was not registered until now.

        Then the caller claims once more before it waits, for jobs that were published without a
        notification.
        """
        now, is_new = time.monotonic(), self._connection is None
        if is_new:
            self._connection = connect(self._dsn)
            Session(self._connection, BRIEF_SECONDS).execute(f"LISTEN {DATABASE_CHANNEL}")
        if is_new or now > self._registered_until - REGISTRATION.total_seconds() / 2:
            session.run("wait", self._params())
            is_new = is_new or now > self._registered_until
            self._registered_until = now + REGISTRATION.total_seconds()
        return is_new

    def wait(self, patience: timedelta | None) -> bool:
        """Wait for a notification, or for the next poll if none comes.

        `patience` is the time until the next job becomes due, or None if none is known. Return True
        if there was a notification, or if that job is due, so that a claim may find jobs.
        """
        seconds = min(POLL, patience or POLL).total_seconds()
        if self._is_notified(time.monotonic() + seconds):
            return True
        return patience is not None and patience <= POLL

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _is_notified(self, until: float) -> bool:
        assert self._connection is not None
        consumer_id = str(self._owned.consumer_id)
        while (left := until - time.monotonic()) > 0:
            for notification in self._connection.notifies(timeout=left, stop_after=1):
                if notification.payload == consumer_id:
                    return True
        return False

    def _params(self) -> dict[str, Any]:
        return {
            "consumer_ids": [self._owned.consumer_id],
            "pulls": [0],
            "node_id": self._owned.node_id,
            "patience": REGISTRATION,
        }
