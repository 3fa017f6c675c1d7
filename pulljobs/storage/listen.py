"""Waking those who wait: NOTIFY after a commit, LISTEN on a connection of its own.

Polling is the truth. A notification that gets lost costs one poll interval.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import psycopg
from django.db import connections, transaction

from pulljobs.storage.statements import run

DATABASE_CHANNEL: Final = "pulljobs"


def wake_on_commit(using: str, consumer_ids: Iterable[int]) -> None:
    """Once the caller's transaction is committed, wake who waits for these consumers."""
    waking = sorted(set(consumer_ids))
    if waking:
        # Robust: it comes after the commit, and must not look as if that had failed.
        transaction.on_commit(lambda: wake(using, waking), using=using, robust=True)


def wake(using: str, consumer_ids: Sequence[int]) -> None:
    params = {"consumer_ids": list(consumer_ids), "database_channel": DATABASE_CHANNEL}
    run(using, "notify", params, always_prepare=True)


def wait(using: str, consumer_ids: Sequence[int], node_id: UUID, patience: timedelta) -> None:
    """Be woken for these consumers for so long. Commit, then claim, and only then wait."""
    params = {"consumer_ids": sorted(consumer_ids), "node_id": node_id, "patience": patience}
    run(using, "wait", params)


class Listener:
    """A connection that hears the wake-ups of all consumers."""

    def __init__(self, using: str) -> None:
        connection = connections[using]
        params = connection.get_connection_params()
        params.pop("cursor_factory", None)
        params.pop("context", None)
        connection.ensure_connection()
        self._connection: psycopg.Connection[Any] = psycopg.connect(**params, autocommit=True)
        self._connection.execute(f"LISTEN {DATABASE_CHANNEL}")

    def heard(self, timeout: timedelta) -> set[int]:
        """Consumers that got something, as soon as one did; empty after the timeout."""
        seconds = timeout.total_seconds()
        return {
            int(notification.payload)
            for notification in self._connection.notifies(timeout=seconds, stop_after=1)
        }

    def close(self) -> None:
        self._connection.close()
