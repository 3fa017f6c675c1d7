"""A connection that died between two requests is made again, as the ORM makes it."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections

from pulljobs import pulling
from pulljobs.engine import outcomes
from pulljobs.models import Consumer, Job
from pulljobs.publishing import publish
from pulljobs.pulling import Puller
from pulljobs.states import State
from tests.factories import USING, ConsumerFactory, claimed, published
from tests.sessions import query, session

CALLS: dict[str, Callable[[Consumer, int], Any]] = {
    "orm": lambda consumer, job: Consumer.objects.get(),
    "publish": lambda consumer, job: publish(consumer.channel.name, b"x"),
    "publish with an id": lambda consumer, job: publish(
        consumer.channel.name, b"x", message_id="m"
    ),
    "claim": lambda consumer, job: Puller(USING, consumer).claim(1).taken,
    "take": lambda consumer, job: pulling.take(consumer, job, State.QUEUED),
}


@pytest.mark.own_session
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_first_of_a_request(
    call: Callable[[Consumer, int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that is the first of its request works although the idle connection has died."""
    connection = connections[USING]
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "CONN_HEALTH_CHECKS", True)
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
    consumer = ConsumerFactory.create()
    [job] = published(consumer)
    [(pid,)] = query("SELECT pg_backend_pid()")
    with session() as other:
        other.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])
    connection.close_if_unusable_or_obsolete()  # as every request begins
    try:
        assert call(consumer, job)
    finally:
        connection.close()


@pytest.mark.own_session
@pytest.mark.django_db(transaction=True)
def test_a_connection_lost_after_the_commit_does_not_make_an_outcome_look_unwritten() -> None:
    """An outcome is reported as written even if the connection dies after its commit."""
    consumer = ConsumerFactory.create()
    published(consumer)
    taken = claimed(consumer)
    [(pid,)] = query("SELECT pg_backend_pid()")

    def cut(execute: Callable[..., Any], *arguments: Any) -> Any:
        with session() as other:
            other.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])
        return execute(*arguments)

    connection = connections[USING]
    try:
        with connection.execute_wrapper(cut):  # which the consumers to wake are read through
            finished = pulling.finish([outcomes.release(job) for job in taken])
    finally:
        connection.close()
    assert finished.released == {job.job_id for job in taken}
    assert set(Job.objects.values_list("state", flat=True)) == {State.QUEUED}
