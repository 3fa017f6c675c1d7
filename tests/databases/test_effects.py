"""Writes of transactional handlers in two databases are committed with the end of their jobs.

They need the second database of PULLJOBS_TEST_SECOND=1, with which test_second.py runs them.
"""

from collections.abc import Callable
from contextlib import suppress

import pytest
from django.contrib.auth.models import Group
from django.db import DEFAULT_DB_ALIAS, IntegrityError, connections, transaction

from pulljobs import jobs
from pulljobs.handlers import ClaimedJob
from pulljobs.models import Channel
from pulljobs.states import State
from pulljobs.worker import transactions
from pulljobs.worker.executor import perform
from tests import second
from tests.factories import USING
from tests.worker.claiming import FlusherBench, claim_of

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not second.IS_ON, reason="for PULLJOBS_TEST_SECOND=1"),
    pytest.mark.always,
]


def write() -> None:
    Channel.objects.create(name="in the one")
    create()


def create() -> None:
    Group.objects.create(name="in the other")


def insert() -> None:
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute("INSERT INTO auth_group (name) VALUES ('in the other')")


def test_an_error_undoes_the_writes_in_both_databases() -> None:
    def work() -> None:
        with transactions.atomic():
            write()
            raise ValueError("as it happens")

    with pytest.raises(ValueError, match="as it happens"):
        work()
    assert not Channel.objects.exists()
    assert not Group.objects.exists()


@pytest.mark.parametrize("spoil", [create, insert])
def test_an_error_that_a_handler_swallows_in_its_own_database_is_a_failure(
    spoil: Callable[[], object],
) -> None:
    """A job whose handler swallows a database error is retried, as its transaction can't commit."""

    def work(job: ClaimedJob) -> None:
        create()
        with suppress(IntegrityError):
            spoil()

    [job] = claim_of(work, transactional=True)
    FlusherBench([job]).write(job, perform(job))
    assert jobs.get(job.id).state == State.QUEUED
    assert "'default'" in (jobs.get(job.id).error or "")
    assert not Group.objects.exists()


def test_the_writes_of_the_handler_are_committed_before_the_end_of_its_job() -> None:
    """A crash between the two commits repeats the handler's writes, but never loses them."""
    committed: list[str] = []
    with transactions.atomic():
        write()
        transaction.on_commit(lambda: committed.append("job"), using=USING)
        transaction.on_commit(lambda: committed.append("effect"), using=DEFAULT_DB_ALIAS)
    assert committed == ["effect", "job"]
    assert Channel.objects.exists()
    assert Group.objects.exists()
