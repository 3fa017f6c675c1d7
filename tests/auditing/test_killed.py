"""A process that redrives very many jobs is killed in the middle.

Another process continues. PULLJOBS_TEST_REDRIVEN=100000 runs it at full size.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from django.db import connections

from example_project.state import BASE_DIR
from pulljobs import auditing
from pulljobs.auditing import BATCH
from pulljobs.models import AuditedBatch, AuditEntry
from pulljobs.states import Event
from pulljobs.storage.selecting import Selection
from tests.factories import ConsumerFactory
from tests.sessions import blocked_by, query, session, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes, pytest.mark.owner]

JOBS = int(os.environ.get("PULLJOBS_TEST_REDRIVEN", "6000"))
KILLS = 3 if JOBS >= 100_000 else 1
PATIENCE = 300
FILL = """
INSERT INTO pulljobs_job
    (id, consumer_id, message_id, priority, state, reason, error, retry_count, deliveries)
SELECT n, %s, n, 0, 'DEAD', 'rejected', 'bad', 3, 4 FROM generate_series(1, %s) AS n
"""
REDRIVEN = """
CREATE TABLE redriven AS SELECT 0::bigint AS id LIMIT 0;
CREATE TABLE halting AS TABLE redriven;
CREATE FUNCTION note_redriven() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN
        INSERT INTO redriven VALUES (NEW.id);
        PERFORM pg_advisory_xact_lock(id) FROM halting WHERE id = NEW.id;
        RETURN NEW;
    END';
CREATE TRIGGER note_redriven AFTER UPDATE ON pulljobs_job FOR EACH ROW
    WHEN (OLD.state = 'DEAD' AND NEW.state = 'QUEUED') EXECUTE FUNCTION note_redriven()
"""
"""Triggers that record redrives independently of the audit and stop at some jobs."""
AT_WORK = """
SELECT FROM pg_stat_activity
WHERE datname = current_database() AND state <> 'idle' AND pid <> pg_backend_pid()
    AND backend_type = 'client backend'
"""


@pytest.fixture
def witness() -> Iterator[None]:
    query(REDRIVEN)
    yield
    query("DROP TABLE redriven, halting; DROP FUNCTION note_redriven() CASCADE")


def test_each_job_is_redriven_once_and_the_audit_adds_up(witness: None) -> None:
    consumer = ConsumerFactory.create()
    query(FILL, [consumer.pk, JOBS])
    preview = auditing.preview(Event.REDRIVE, Selection())
    assert (preview.jobs, preview.is_more) == (min(JOBS, auditing.COUNTED), JOBS > auditing.COUNTED)
    entry = auditing.begin(
        Event.REDRIVE, Selection(), by="olga", subject="all that is dead", expected=preview
    )
    AuditEntry.objects.update(last=JOBS)  # the ids of these jobs contain no time
    halts = [JOBS * turn // (KILLS + 2) + BATCH // 2 for turn in range(1, KILLS + 1)]
    seen = [kill_in_the_middle(entry, halt) for halt in halts]
    assert all(0 < done < JOBS for done in seen), "no process was killed in the middle"
    assert start().wait(PATIENCE) == 0

    entry.refresh_from_db()
    noted = Counter(id for (id,) in query("SELECT id FROM redriven"))
    batches = AuditedBatch.objects.filter(entry=entry).values_list("done", flat=True)
    written = Counter(id for done in batches for id in done)
    assert set(noted.values()) == {1}
    assert written == noted
    assert len(noted) == entry.done == JOBS
    assert entry.refused == 0
    assert entry.finished_at is not None
    assert query("SELECT state, count(*) FROM pulljobs_job GROUP BY state") == [("QUEUED", JOBS)]


def kill_in_the_middle(entry: AuditEntry, halt: int) -> int:
    """Start a process that redrives the jobs of the entry, and kill it at the job `halt`.

    Return how many jobs are recorded as done once the server has ended the batch.
    """
    query("INSERT INTO halting VALUES (%s)", [halt])
    with session() as other:
        other.execute("SELECT pg_advisory_lock(%s)", [halt])
        process = start()
        wait_until(lambda: process.poll() is not None or blocked_by(other), PATIENCE)
        process.kill()
        process.wait()
    wait_until(lambda: not query(AT_WORK))  # the server ends the batch
    return done(entry)


def done(entry: AuditEntry) -> int:
    return AuditEntry.objects.values_list("done", flat=True).get(pk=entry.pk)


def start() -> subprocess.Popen[bytes]:
    known = connections["default"].get_connection_params()
    place = {key: known[key] for key in ("host", "port", "user", "password") if known.get(key)}
    place_of = "&".join(f"{key}={value}" for key, value in place.items())
    url = f"postgres:///{known['dbname']}?{place_of}"
    return subprocess.Popen(
        [sys.executable, "manage.py", "pulljobs", "operate"],
        cwd=BASE_DIR,
        env={**os.environ, "DATABASE_URL": url},
        stdout=subprocess.DEVNULL,
    )
