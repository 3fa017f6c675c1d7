"""Reaper in the Spark driver of a stream, which also ends leases that killed queries left."""

import random
import threading
from collections import Counter
from contextlib import closing
from typing import Final

from pulljobs.engine import outcomes
from pulljobs.engine.full_queue import notify
from pulljobs.engine.outcomes import Held
from pulljobs.engine.sql import DATABASE_CHANNEL, Row
from pulljobs.engine.telemetry import JobsFinished, LoopFailed, emit
from pulljobs.states import Event
from pyspark_pulljobs import settling
from pyspark_pulljobs.connecting import connect
from pyspark_pulljobs.database_session import BRIEF_SECONDS, PlannedSession, Session

INTERVAL_SECONDS: Final = 5.0
JITTER: Final = 0.3
LEASES: Final = 20
"""Largest number of leases that one transaction ends."""
END_SECONDS: Final = 1.0
END_SILENT: Final = b"SET LOCAL idle_in_transaction_session_timeout = '10s'"
"""Statement without which a Spark driver that freezes would keep overdue leases locked."""
CONSUMERS: Final = b"SELECT DISTINCT consumer_id FROM pulljobs_job WHERE id = ANY(%s)"


class StreamReaper:
    """Daemon thread that reaps from time to time until `end` is called.

    Workers, other streams and, unless REAP_WHILE_SERVING is False, servers of the HTTP API reap as
    well. All of them skip leases that another reaper has locked.
    """

    def __init__(self, dsn: str) -> None:
        """Start the thread, which opens a connection for each pass."""
        self._dsn = dsn
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reaper", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop the thread, and wait for it for at most `END_SECONDS`."""
        self._ended.set()
        self._thread.join(END_SECONDS)  # Without a database the thread may hang.

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL_SECONDS * random.uniform(1 - JITTER, 1)):
            try:
                with closing(connect(self._dsn)) as connection:
                    session = PlannedSession(connection, BRIEF_SECONDS)
                    while not self._ended.is_set() and reap(session):
                        pass
            except Exception as error:
                reason = str(error).strip().partition("\n")[0]
                emit(LoopFailed("The reaper of a stream", reason, INTERVAL_SECONDS))


def reap(session: Session) -> bool:
    """Expire the jobs of at most `LEASES` overdue leases. Return False if it could lock none."""
    with session.atomic():
        session.execute(END_SILENT)
        leases = session.run("expired", {"leases": LEASES})
        settlements = [
            outcomes.expire(Held(job_id, lease.lease_token), lease.running_ids, lease.via)
            for lease in leases
            for job_id in lease.job_ids
        ]
        params = outcomes.parameters(settlements)
        rows = settling.finish(session, params, len(settlements)) if settlements else []
        _end(session, leases)
    if rows:
        emit(JobsFinished(Counter((Event.EXPIRE, row.state) for row in rows)))
        _notify(session, [row.job_id for row in rows])
    return bool(leases)


def _end(session: Session, leases: list[Row]) -> None:
    """Delete the leases whose jobs have all expired, and leave the others to a later pass.

    The others have jobs that another transaction has locked.
    """
    if whole := [lease.lease_id for lease in leases if lease.is_whole]:
        session.run("end_leases", {"lease_ids": whole})
    if rest := [lease.lease_id for lease in leases if not lease.is_whole]:
        session.run("postpone_leases", {"lease_ids": rest, "running_ids": None})


def _notify(session: Session, job_ids: list[int]) -> None:
    """Notify the waiters of the consumers of these jobs."""
    consumer_ids = [row[0] for row in session.execute(CONSUMERS, [job_ids])]
    if consumer_ids:
        params = {"consumer_ids": consumer_ids, "database_channel": DATABASE_CHANNEL}
        notify(lambda: session.run("notify", params))
