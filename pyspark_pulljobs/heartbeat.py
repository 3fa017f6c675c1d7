"""While batches run: the owner lives, and keeps their leases."""

import json
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

import psycopg

from pulljobs.engine.telemetry import LoopFailed, emit
from pulljobs.errors import ConfigurationError
from pyspark_pulljobs.ownership import BEAT, PATIENCE, Owned
from pyspark_pulljobs.session import Session, opened

RENEWALS: Final = 3
"""In the length of a lease."""
PAUSE_SECONDS: Final = 1.0


class Heartbeat:
    """A thread with a connection of its own; it ends with the process, or when it is told to."""

    def __init__(self, dsn: str, owned: Owned, report: Mapping[str, Any]) -> None:
        """`report` is told with every beat, as it is then."""
        self._dsn, self._owned, self._report = dsn, owned, report
        self._renewed_at = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join(PAUSE_SECONDS)  # without a database it may hang

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                with opened(self._dsn) as session:
                    self._beat(session)
            except (psycopg.Error, ConfigurationError) as error:
                emit(LoopFailed("The heartbeat of a stream", _first_line(error), PAUSE_SECONDS))
                self._ended.wait(PAUSE_SECONDS)

    def _beat(self, session: Session) -> None:
        while not self._ended.wait(BEAT.total_seconds()):
            now = time.monotonic()
            renews = now - self._renewed_at >= self._owned.lease_duration.total_seconds() / RENEWALS
            if not keep(session, self._owned, self._report, renews=renews):
                self._ended.set()  # Whoever took it over is told nothing by us.
            if renews:
                self._renewed_at = now


def keep(session: Session, owned: Owned, report: Mapping[str, Any], *, renews: bool) -> bool:
    """Whether this process still owns the stream."""
    return _told(session, owned, report, renews, PATIENCE)


def leave(session: Session, owned: Owned, report: Mapping[str, Any]) -> None:
    """Let others have the stream at once; leases stay as they are."""
    _told(session, owned, report, False, None)


def _told(
    session: Session, owned: Owned, report: Mapping[str, Any], renews: bool, patience: Any
) -> bool:
    params = {
        "stream_id": owned.stream_id,
        "node_id": owned.node_id,
        "patience": patience,
        "lease_duration": owned.lease_duration,
        "renewed": renews,
        "report": json.dumps(dict(report)),
    }
    [(is_owned, _kept)] = session.run("keep_stream", params)
    return bool(is_owned)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
