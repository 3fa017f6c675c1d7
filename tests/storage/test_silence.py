"""A process that falls silent in a transaction of pulljobs soon loses it and its locks.

It is paused, or its host is lost: the server cannot know, because the connection seems to live.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connections, transaction

from pulljobs import pulling
from pulljobs.engine import outcomes
from pulljobs.pulling import Puller
from pulljobs.states import State
from pulljobs.storage import jobs, keys, partition_making, sessions, statements
from pulljobs.storage.rows import Taken
from pulljobs.storage.transactions import brief
from tests.days import no_days
from tests.factories import USING, ConsumerFactory, claimed, published
from tests.keyed import claim, exclusive, queued
from tests.sessions import Thread, pass_time, query, session

pytestmark = pytest.mark.django_db(transaction=True)
SETTING = "idle_in_transaction_session_timeout"

REFUSE_PATIENCE = f"""
CREATE FUNCTION refuse_patience() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    ASSERT current_setting('{SETTING}') = '10s', 'it may be silent for long';
    RETURN coalesce(NEW, OLD);
END $$;
CREATE FUNCTION refuse_patient_makers() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
    ASSERT current_setting('{SETTING}') = '10s', 'it may be silent for long';
END $$;
CREATE TRIGGER refuse_patience BEFORE DELETE ON pulljobs_lease
FOR EACH ROW EXECUTE FUNCTION refuse_patience();
"""
FORGET = "DROP FUNCTION refuse_patience CASCADE; DROP FUNCTION refuse_patient_makers CASCADE"


@pytest.fixture
def _short_silence() -> Iterator[None]:
    query(REFUSE_PATIENCE)
    yield
    query(FORGET)


@pytest.fixture(autouse=True)
def _own_connection() -> Iterator[None]:
    yield
    connections[USING].close()


def patience() -> str:
    [(value,)] = query(f"SHOW {SETTING}")
    return str(value)


def test_locks_of_who_falls_silent_are_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = ConsumerFactory.create()
    monkeypatch.setattr(sessions, "SILENCE", timedelta(milliseconds=100))
    text = "SELECT FROM pulljobs_consumer WHERE id = %s FOR UPDATE"
    with pytest.raises(DatabaseError), brief(USING):  # noqa: PT012  the end of a block is what fails
        query(text, [consumer.pk])
        with session() as other:
            other.execute("SET lock_timeout = '60s'")
            assert other.execute(text, [consumer.pk]).rowcount == 1


def test_who_goes_on_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SILENCE", timedelta(milliseconds=100))
    with brief(USING):
        query("SELECT pg_sleep(0.3)")
    assert patience() == "0"


@pytest.mark.own_session
@pytest.mark.parametrize(
    ("given", "got"), [("0", "10s"), ("1h", "10s"), ("10001ms", "10s"), ("3s", "3s")]
)
def test_a_shorter_time_of_the_servers_stands(given: str, got: str) -> None:
    query(f"SET {SETTING} = '{given}'")
    with brief(USING):
        assert patience() == got
    assert patience() == given


def test_a_transaction_of_the_callers_keeps_its_time() -> None:
    with transaction.atomic(using=USING):
        with brief(USING):
            assert patience() == "0"
        assert patience() == "0"


@pytest.mark.own_session
def test_connections_of_a_workers_loops_have_it_always() -> None:
    """Connections of loops have the limit of silence outside of transactions as well."""

    def loop() -> list[str]:
        sessions.dedicate(USING)
        try:
            statements.run(USING, "server", {})
            outside = patience()
            with transaction.atomic(using=USING):
                return [outside, patience()]
        finally:
            connections[USING].close()

    assert Thread(loop).result() == ["10s", "10s"]


@pytest.mark.owner
@pytest.mark.usefixtures("_short_silence")
def test_days_are_made_and_leases_ended_on_any_connection() -> None:
    """Reaping and making partitions set the limit of silence themselves, for any connection."""
    consumer = ConsumerFactory.create()
    claimed(consumer, len(published(consumer)))
    pass_time()
    assert jobs.reap(USING, 10)
    maker = "CREATE EVENT TRIGGER refuse_patient_makers ON ddl_command_start EXECUTE FUNCTION"
    with no_days():
        query(f"{maker} refuse_patient_makers()")
        assert list(partition_making.make_ahead(USING, 0))
        query("DROP EVENT TRIGGER refuse_patient_makers")


@pytest.fixture
def _short_claims(_short_silence: None) -> None:
    query(
        "CREATE TRIGGER refuse_patient_claims BEFORE INSERT ON pulljobs_lease"
        " FOR EACH ROW EXECUTE FUNCTION refuse_patience()"
    )


@pytest.mark.owner
@pytest.mark.usefixtures("_short_claims")
@pytest.mark.parametrize(
    ("bounds", "options"),
    [
        ({"exclusive_keys": True}, {}),
        ({"max_in_flight": 1}, {}),
        ({"rate": "1/s"}, {}),
        ({}, {"max_bytes": 1_000}),
    ],
    ids=["keys", "max_in_flight", "rate", "max_bytes"],
)
def test_claims_that_mind_keys_or_bounds_may_not_fall_silent(
    bounds: dict[str, Any], options: dict[str, Any]
) -> None:
    """Claims that lock keys or bounds limit how long their own transaction may be silent."""
    consumer = ConsumerFactory.create(**bounds)
    published(consumer, key="a")
    assert Puller(USING, consumer).claim(1, **options).jobs


@pytest.mark.owner
@pytest.mark.usefixtures("_short_claims")
def test_a_claim_by_id_may_not_fall_silent() -> None:
    consumer = ConsumerFactory.create(exclusive_keys=True, max_in_flight=1)
    [job] = published(consumer, key="a")
    assert isinstance(pulling.take(consumer, job, State.QUEUED), Taken)


@pytest.mark.own_session
def test_a_connection_lost_as_a_key_is_freed_fails_no_finish(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`finish` reports committed outcomes if it loses its connection when it frees their keys."""
    consumer = exclusive()
    queued(consumer, "a")
    [held] = claim(consumer)
    free = keys.free

    def lose(*args: Any) -> None:
        [(pid,)] = query("SELECT pg_backend_pid()")
        with session() as other:
            other.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])
        free(*args)

    monkeypatch.setattr(keys, "free", lose)
    assert jobs.finish(USING, [outcomes.deliver(held)]).states == {held.job_id: State.DELIVERED}
    [warning] = caplog.records
    assert "keys could not be freed" in warning.getMessage()
