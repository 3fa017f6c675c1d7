"""`pulljobs operate` continues the unfinished actions of operators."""

import json
from io import StringIO

import pytest
from django.core.management import call_command

from pulljobs import auditing
from pulljobs.models import AuditEntry, Job
from pulljobs.states import Event
from pulljobs.storage.selecting import Selection
from tests.factories import ConsumerFactory
from tests.sessions import session

pytestmark = pytest.mark.django_db(transaction=True)


def run_operate(*arguments: str) -> str:
    output = StringIO()
    call_command("pulljobs", "operate", *arguments, stdout=output)
    return output.getvalue()


@pytest.fixture
def entry() -> AuditEntry:
    ConsumerFactory.create()
    return auditing.begin(Event.REDRIVE, Selection(), by="olga", subject="all that is dead")


def test_operate_finishes_an_action_and_reports_it(entry: AuditEntry) -> None:
    result = json.loads(run_operate("--json"))
    assert result == {"finished": [str(entry)], "others": [], "jobs": 0}
    entry.refresh_from_db()
    assert entry.finished_at is not None
    assert run_operate() == "No action is unfinished.\n"


def test_an_action_that_a_worker_continues_is_not_reported_as_finished(entry: AuditEntry) -> None:
    with session() as worker:
        worker.execute("SELECT FROM pulljobs_audit_entry FOR UPDATE")
        assert run_operate() == f"Another process continues {entry}.\n"
        result = json.loads(run_operate("--json"))
    assert result == {"finished": [], "others": [str(entry)], "jobs": 0}
    assert not Job.objects.exists()
