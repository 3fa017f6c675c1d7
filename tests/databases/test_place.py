"""With PULLJOBS_TEST_SECOND=1, a role that owns no table works in a second database."""

import os

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.db.utils import ProgrammingError

from pulljobs.models import Job
from tests import second
from tests.factories import USING, ConsumerFactory
from tests.sessions import query, wait_until
from tests.worker.conftest import stage
from tests.worker.processes import Stage

__all__ = ["stage"]

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not second.IS_ON, reason="for PULLJOBS_TEST_SECOND=1"),
    pytest.mark.always,
]
TABLES = "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'pulljobs_%'"


def asked(using: str, text: str) -> object:
    with connections[using].cursor() as cursor:
        cursor.execute(text)
        [value] = cursor.fetchone() or [None]
    return value


def test_jobs_are_in_the_second_database_and_other_models_in_the_first() -> None:
    ConsumerFactory.create()
    User.objects.create(username="ada")
    assert USING == "jobs"
    assert (Job.objects.all().db, User.objects.all().db) == ("jobs", "default")
    assert asked("default", TABLES) == 0
    assert asked("jobs", "SELECT to_regclass('auth_user') IS NOT NULL") in (True, False)
    assert asked("jobs", "SELECT current_database()") != asked(
        "default", "SELECT current_database()"
    )


def test_the_role_owns_nothing_and_may_not_change_history() -> None:
    assert asked("jobs", "SELECT session_user") == os.environ["JOBS_APP"]
    assert asked("jobs", "SELECT current_user") == os.environ["JOBS_APP"]
    assert not asked("jobs", "SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
    with pytest.raises(ProgrammingError, match="permission denied"):
        asked("jobs", "DELETE FROM pulljobs_archived_job RETURNING 1")


@pytest.mark.processes
def test_a_worker_process_logs_in_as_that_role(stage: Stage) -> None:
    stage.consumer()
    stage.until_gate()
    stage.worker()
    stage.wait_for("started")
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    assert asked("jobs", f"{sessions} AND usename = '{os.environ['JOBS_OWNER']}'") == 0
    assert query(f"{sessions} AND usename = %s", [os.environ["JOBS_APP"]]) > [(1,)]
    stage.open_gate()
    wait_until(lambda: not Job.objects.exists())
