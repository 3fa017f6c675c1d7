"""The database goes away and comes back. The worker goes on, and no outcome is lost."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from example_project.state import BASE_DIR
from pulljobs.models import ArchivedJob, Job
from tests import second
from tests.example.processes import EmbeddedProject, kill_server, postmaster, project
from tests.sessions import query, wait_until
from tests.worker.history import FILE
from tests.worker.processes import Stage

pytestmark = pytest.mark.processes
COUNT = 400
PREPARE = f"""
import django
django.setup()
from django.core.management import call_command
from django.db import connection
from pulljobs import handlers
from pulljobs.publishing import publish_many
call_command("migrate", verbosity=0)
handlers.autodiscover()
handlers.sync_consumers()
publish_many("script", [{{"seconds": 0.02}}] * {COUNT})
print(connection.settings_dict["HOST"])
"""


def terminate_all_others() -> None:
    query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


def test_terminated_connections_cost_nothing(stage: Stage) -> None:
    """No outcome is lost, so each job runs once, and no retry is counted."""
    stage.consumer()
    every = stage.publish(COUNT, seconds=0.02)
    worker = stage.worker("--concurrency", "4")
    for share in range(1, 8):
        stage.wait_for("ended", share * COUNT // 10)
        terminate_all_others()
    wait_until(lambda: not Job.objects.exists())
    assert stage.runs() == dict.fromkeys(every, 1)
    assert set(ArchivedJob.objects.values_list("state", "retry_count")) == {("DELIVERED", 0)}
    assert "goes on in" in worker.log
    assert worker.stop() == 0


def make_read_only(is_read_only: bool) -> None:
    """Make new sessions read-only, or writable again, and terminate all others."""
    name = connection.settings_dict["NAME"]
    setting = "SET default_transaction_read_only = on" if is_read_only else "RESET ALL"
    query(f'ALTER DATABASE "{name}" {setting}')
    terminate_all_others()


@pytest.mark.own_session
def test_a_read_only_period_costs_nothing(stage: Stage) -> None:
    """Outcomes wait while the database is read-only, and each job still runs only once."""
    stage.consumer()
    every = stage.publish(COUNT // 2, seconds=0.02)
    worker = stage.worker("--concurrency", "4", "--burst")
    stage.wait_for("ended", COUNT // 10)
    make_read_only(True)
    try:
        wait_until(lambda: "flusher failed" in worker.log and "read-only" in worker.log)
    finally:
        make_read_only(False)
    wait_until(lambda: not Job.objects.exists(), 60)
    assert stage.runs() == dict.fromkeys(every, 1)
    assert set(ArchivedJob.objects.values_list("state", "retry_count")) == {("DELIVERED", 0)}
    assert worker.ended() == 0


@pytest.mark.own_session
def test_a_worker_that_starts_while_the_database_is_read_only_says_so_and_starts_later(
    stage: Stage,
) -> None:
    stage.consumer()
    [job] = stage.publish(1)
    make_read_only(True)
    try:
        worker = stage.worker()
        wait_until(lambda: "this process will be replaced" in worker.log)
    finally:
        make_read_only(False)
    wait_until(lambda: not Job.objects.exists())
    assert "cannot execute INSERT in a read-only transaction" in worker.log
    assert "Traceback" not in worker.log
    assert stage.runs() == {job: 1}
    assert worker.stop() == 0


class ServerOfItsOwn:
    """Project with a database server of its own, reachable by its socket only."""

    def __init__(self, made: EmbeddedProject, directory: Path) -> None:
        self.history = directory / "history"
        # Empty instead of absent: a worker gets these values on top of the tests' environment.
        elsewhere = {"DATABASE_URL": "", "DATABASE_POOLED": ""}
        self.environment = {**os.environ, **elsewhere, **second.NOT, **made.environment}
        self.environment |= {
            "DJANGO_SETTINGS_MODULE": "tests.worker.settings",
            "WORKER_DATABASE": "pulljobs",
            FILE: str(self.history),
        }
        prepared = subprocess.run(
            [sys.executable, "-c", PREPARE],
            env=self.environment,
            cwd=BASE_DIR,
            check=True,
            capture_output=True,
            text=True,
        )
        self.socket = Path(prepared.stdout.strip())

    def counts(self) -> tuple[int, int, int]:
        """Return the live jobs, delivered jobs and retries. All are -1 while the server is down."""
        with (
            suppress(psycopg.OperationalError),
            psycopg.connect(host=str(self.socket), user="pulljobs", dbname="pulljobs") as direct,
        ):
            row = direct.execute(
                "SELECT (SELECT count(*) FROM pulljobs_job), count(DISTINCT job_id),"
                " sum(retry_count)::int FROM pulljobs_archived_job WHERE state = 'DELIVERED'"
            ).fetchone()
            assert row
            return row
        return (-1, -1, -1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerOfItsOwn]:
    with project() as made:
        user = made.user()
        user.connect()
        yield ServerOfItsOwn(made, tmp_path)


@pytest.mark.own_session
def test_restarts_of_the_server_under_load_cost_nothing(
    stage: Stage, server: ServerOfItsOwn
) -> None:
    stage.environment, stage.history_file = server.environment, server.history
    worker = stage.worker("--concurrency", "4")
    try:
        stage.wait_for("ended", COUNT // 10)
        os.kill(postmaster(server.socket), signal.SIGINT)
        stage.wait_for("ended", COUNT // 2)
        kill_server(server.socket)
        wait_until(lambda: server.counts() == (0, COUNT, 0))
        assert set(stage.runs().values()) == {1}
        assert worker.stop() == 0
    finally:
        worker.kill_all()
