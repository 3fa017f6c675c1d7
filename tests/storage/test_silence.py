"""Whoever falls silent amid a transaction of ours soon loses it, and its locks with it.

Paused, or gone with its host: the server can't tell, for the connection seems to live.
"""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import DatabaseError, connections, transaction

from pulljobs.storage import jobs, partitions, statements
from pulljobs.storage.statements import brief
from tests.days import no_days
from tests.factories import USING, ConsumerFactory, claimed, published
from tests.sessions import Thread, pass_time, query, session

pytestmark = pytest.mark.django_db(transaction=True)
SETTING = "idle_in_transaction_session_timeout"

REFUSE_PATIENCE = f"""
CREATE FUNCTION refuse_patience() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    ASSERT current_setting('{SETTING}') = '10s', 'it may be silent for long';
    RETURN OLD;
END $$;
CREATE FUNCTION refuse_patient_makers() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
    ASSERT current_setting('{SETTING}') = '10s', 'it may be silent for long';
END $$;
CREATE TRIGGER refuse_patience BEFORE DELETE ON pulljobs_lease
FOR EACH ROW EXECUTE FUNCTION refuse_patience();
"""
FORGET = "DROP FUNCTION refuse_patience CASCADE; DROP FUNCTION refuse_patient_makers CASCADE"


@pytest.fixture
def _nobody_is_patient() -> Iterator[None]:
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
    monkeypatch.setattr(statements, "SILENCE", timedelta(milliseconds=100))
    text = "SELECT FROM pulljobs_consumer WHERE id = %s FOR UPDATE"
    with pytest.raises(DatabaseError), brief(USING):  # noqa: PT012  the end of a block is what fails
        query(text, [consumer.pk])
        with session() as other:
            other.execute("SET lock_timeout = '60s'")
            assert other.execute(text, [consumer.pk]).rowcount == 1


def test_who_goes_on_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "SILENCE", timedelta(milliseconds=100))
    with brief(USING):
        query("SELECT pg_sleep(0.3)")
    assert patience() == "0"


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


def test_connections_of_a_workers_loops_have_it_always() -> None:
    def loop() -> list[str]:
        statements.dedicate(USING)
        try:
            statements.run(USING, "server", {})
            outside = patience()
            with transaction.atomic(using=USING):
                return [outside, patience()]
        finally:
            connections[USING].close()

    assert Thread(loop).result() == ["10s", "10s"]


@pytest.mark.owner
@pytest.mark.usefixtures("_nobody_is_patient")
def test_days_are_made_and_leases_ended_on_any_connection() -> None:
    """The upkeep of commands, and of workers behind a pooler: that keeps no setting."""
    consumer = ConsumerFactory.create()
    claimed(consumer, len(published(consumer)))
    pass_time()
    assert jobs.reap(USING, 10)
    maker = "CREATE EVENT TRIGGER refuse_patient_makers ON ddl_command_start EXECUTE FUNCTION"
    with no_days():
        query(f"{maker} refuse_patient_makers()")
        assert list(partitions.make_ahead(USING, 0))
        query("DROP EVENT TRIGGER refuse_patient_makers")
