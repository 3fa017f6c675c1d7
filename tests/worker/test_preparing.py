"""A worker has its statements planned before its first job, which would wait for that."""

from collections.abc import Callable
from functools import partial

import pytest
from django.db import connections

from pulljobs import pulling
from pulljobs.engine import members, outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.pulling import Puller
from pulljobs.storage import sessions
from tests.factories import USING, ConsumerFactory, published
from tests.sessions import Thread

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.own_session]
ROOM = 500


def planned() -> set[str]:
    """Return the statements that the server has planned for the connection of this thread."""
    with connections[USING].cursor() as cursor:
        cursor.execute("SELECT name || statement FROM pg_prepared_statements")
        return {row[0] for row in cursor.fetchall()}


def planned_by(prepare: Callable[[], object], work: Callable[[], object]) -> set[str]:
    """Return the statements that `work` plans on a connection after a call of `prepare`."""

    def compare() -> set[str]:
        sessions.dedicate(USING)
        prepare()
        before = planned()
        assert before
        work()
        return planned() - before

    new: set[str] = Thread(compare).result()
    return new


def test_claims_are_planned_before_the_first_job() -> None:
    consumer = ConsumerFactory.create()
    puller = Puller(USING, consumer)

    def claim_some() -> None:
        for jobs in (1, 20, 1, 1):
            Thread(partial(published, consumer, jobs)).result()
            assert len(puller.claim(ROOM, lease_duration=consumer.lease_duration).jobs) == jobs

    assert planned_by(lambda: puller.prepare(consumer.lease_duration), claim_some) == set()


def test_outcomes_are_planned_before_the_first_job(monkeypatch: pytest.MonkeyPatch) -> None:
    # A worker begins like this. An earlier test may have settled members of batches.
    monkeypatch.setattr(members, "_until", float("-inf"))
    consumer = ConsumerFactory.create()
    published(consumer, 3)
    claim = Puller(USING, consumer).claim(3)
    assert claim.taken is not None
    first, second, third = (Held(job.id, claim.taken.lease_token) for job, _message in claim.jobs)

    def settle() -> None:
        assert pulling.finish([outcomes.deliver(first)]).states
        assert pulling.finish([outcomes.retry(second, "?"), outcomes.deliver(third)]).states

    assert planned_by(pulling.prepare_to_finish, settle) == set()
