"""Heartbeat of a stream's owner, which also renews the leases of the stream's open batches."""

import json
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from pulljobs.engine.telemetry import LoopFailed, emit
from pyspark_pulljobs.database_session import BRIEF_SECONDS, Session, open_session
from pyspark_pulljobs.ownership import BEAT, PATIENCE, Owned

RENEWALS: Final = 3
"""Number of renewals within one lease duration."""
PAUSE_SECONDS: Final = 1.0


class Heartbeat:
    """Daemon thread that sends heartbeats until `end` is called or another process is the owner."""

    def __init__(self, dsn: str, owned: Owned, report: Mapping[str, Any]) -> None:
        """Start the thread. Each heartbeat stores what `report` contains at that time."""
        self._dsn, self._owned, self._report = dsn, owned, report
        self._renewed_at = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop the thread, and wait for it for at most `PAUSE_SECONDS`."""
        self._ended.set()
        self._thread.join(PAUSE_SECONDS)  # Without a database the thread may hang.

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                with open_session(self._dsn, BRIEF_SECONDS) as session:
                    self._beat(session)
            except Exception as error:
                emit(LoopFailed("The heartbeat of a stream", _first_line(error), PAUSE_SECONDS))
                self._ended.wait(PAUSE_SECONDS)

    def _beat(self, session: Session) -> None:
        while not self._ended.wait(BEAT.total_seconds()):
            now = time.monotonic()
            renews = now - self._renewed_at >= self._owned.lease_duration.total_seconds() / RENEWALS
            if not beat(session, self._owned, self._report, renews=renews):
                self._ended.set()  # Another process owns the stream now.
            if renews:
                self._renewed_at = now


def beat(session: Session, owned: Owned, report: Mapping[str, Any], *, renews: bool) -> bool:
    """Store one heartbeat with the report. Renew the leases of the stream's batches if `renews`.

    Return False, and write nothing, if another process owns the stream now.
    """
    return _store(session, owned, report, renews, PATIENCE)


def leave(session: Session, owned: Owned, report: Mapping[str, Any]) -> None:
    """Give up ownership, so that another process can own the stream at once. Leases stay."""
    _store(session, owned, report, False, None)


def _store(
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
