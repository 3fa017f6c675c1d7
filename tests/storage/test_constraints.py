"""The database itself refuses rows that no state allows, whichever program writes them."""

from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from pulljobs.models import ArchivedJob, Consumer
from pulljobs.states import State
from tests.factories import USING, ConsumerFactory, JobFactory
from tests.sessions import query

pytestmark = pytest.mark.django_db

LEASE = "00000000-0000-0000-0000-000000000001"
JOB: dict[str, Any] = {
    "consumer_id": 1,
    "message_id": 1,
    "state": "QUEUED",
    "retry_count": 0,
    "deliveries": 0,
    "priority": 0,
}
ARCHIVED: dict[str, Any] = {
    "job_id": 1,
    "consumer_id": 1,
    "message_id": 1,
    "state": "DELIVERED",
    "retry_count": 0,
    "deliveries": 1,
    "created_at": "2026-01-01Z",
    "settled_at": "2026-01-01Z",
}


def insert(table: str, row: dict[str, Any]) -> None:
    marks = ", ".join(["%s"] * len(row))
    with transaction.atomic(USING):
        query(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))


@pytest.mark.parametrize(
    ("constraint", "change"),
    [
        ("pulljobs_job_state", {"state": "DELIVERED"}),
        ("pulljobs_job_state", {"state": "RUNNING"}),
        ("pulljobs_job_state", {"state": "INFLIGHT"}),
        ("pulljobs_job_state", {"lease_token": LEASE}),
        ("pulljobs_job_state", {"state": "DEAD", "reason": "killed", "lease_token": LEASE}),
        ("pulljobs_job_state", {"state": "DEAD"}),
        ("pulljobs_job_state", {"reason": "killed"}),
        ("pulljobs_job_state", {"state": "INFLIGHT", "lease_token": LEASE, "reason": "killed"}),
        (
            "pulljobs_job_state",
            {"state": "DEAD", "reason": "killed", "available_at": "2026-01-01Z"},
        ),
        (
            "pulljobs_job_state",
            {"state": "INFLIGHT", "reason": "killed", "available_at": None},
        ),
        ("pulljobs_job_state", {"retry_count": -1}),
        ("pulljobs_job_state", {"deliveries": -1}),
    ],
)
def test_a_job_that_can_not_be(constraint: str, change: dict[str, Any]) -> None:
    """A job row whose columns fit no state, or with a negative count, violates a constraint."""
    with pytest.raises(IntegrityError, match=constraint):
        insert("pulljobs_job", JOB | change)


@pytest.mark.parametrize(
    ("constraint", "change"),
    [
        ("pulljobs_archived_state", {"state": "QUEUED"}),
        ("pulljobs_archived_state", {"state": "INFLIGHT"}),
        ("pulljobs_archived_state", {"state": "DEAD"}),
        ("pulljobs_archived_state", {"reason": "killed"}),
    ],
)
def test_a_settlement_that_can_not_be(constraint: str, change: dict[str, Any]) -> None:
    """An archived row must be DELIVERED without a reason, or DEAD with one."""
    with pytest.raises(IntegrityError, match=constraint):
        insert("pulljobs_archived_job", ARCHIVED | change)


def test_the_rows_that_were_broken_above_are_sound() -> None:
    """The rows from which the refused ones are derived can be inserted."""
    insert("pulljobs_job", JOB)
    insert("pulljobs_archived_job", ARCHIVED)


def test_a_message_gives_a_consumer_one_job() -> None:
    job = JobFactory.create()
    with pytest.raises(IntegrityError, match="pulljobs_job_fan_out"), transaction.atomic(USING):
        query(
            "INSERT INTO pulljobs_job"
            " (consumer_id, message_id, state, retry_count, deliveries, priority)"
            " SELECT consumer_id, message_id, 'QUEUED', 0, 0, 0 FROM pulljobs_job WHERE id = %s",
            [job.id],
        )


@pytest.mark.parametrize(
    ("constraint", "change"),
    [
        ("pulljobs_consumer_lease", "lease_duration = '0'"),
        ("pulljobs_consumer_jitter", "retry_jitter = 1.5"),
        ("pulljobs_consumer_deliveries", "max_deliveries = 0"),
    ],
)
def test_a_consumer_that_can_not_work(constraint: str, change: str) -> None:
    consumer = ConsumerFactory.create()
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic(USING):
        query(f"UPDATE pulljobs_consumer SET {change} WHERE id = %s", [consumer.pk])


@pytest.mark.parametrize("state", [State.QUEUED, State.INFLIGHT, State.DEAD])
def test_a_consumer_with_jobs_keeps_its_row(state: State) -> None:
    """The ORM refuses to delete a consumer with jobs, although no foreign key protects its row."""
    consumer = JobFactory.create(state=state).consumer
    for delete in (consumer.delete, Consumer.objects.filter(pk=consumer.pk).delete):
        refused = pytest.raises(ProtectedError, match="registering.delete_consumer")
        with refused, transaction.atomic(USING):
            delete()
    assert Consumer.objects.filter(pk=consumer.pk).exists()


def test_a_consumer_without_jobs_goes() -> None:
    consumer = JobFactory.create(state=State.DELIVERED).consumer
    consumer.delete()
    assert ArchivedJob.objects.exists()
