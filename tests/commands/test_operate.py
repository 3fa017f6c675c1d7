"""Going on by hand with what operators asked for."""

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


def said(*arguments: str) -> str:
    output = StringIO()
    call_command("pulljobs", "operate", *arguments, stdout=output)
    return output.getvalue()


@pytest.fixture
def entry() -> AuditEntry:
    ConsumerFactory.create()
    return auditing.begin(Event.REDRIVE, Selection(), by="olga", subject="all that is dead")


def test_it_is_finished_and_told(entry: AuditEntry) -> None:
    told = json.loads(said("--json"))
    assert told == {"finished": [str(entry)], "others": [], "jobs": 0}
    entry.refresh_from_db()
    assert entry.finished_at is not None
    assert said() == "Nothing was left to be done.\n"


def test_what_a_worker_is_at_is_not_told_as_done(entry: AuditEntry) -> None:
    with session() as worker:
        worker.execute("SELECT FROM pulljobs_audit_entry FOR UPDATE")
        assert said() == f"Another process is at {entry}.\n"
        told = json.loads(said("--json"))
    assert told == {"finished": [], "others": [str(entry)], "jobs": 0}
    assert not Job.objects.exists()
