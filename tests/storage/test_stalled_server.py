"""A server that stops reading for a while delays a statement. It never makes it wait for ever."""

import logging
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import OperationalError, connections

from pulljobs.engine import deadlines
from pulljobs.engine.deadlines import Deadline, WorkDeadline
from pulljobs.models import Message
from pulljobs.publishing import publish, publish_many
from pulljobs.storage import listen, statements
from pulljobs.storage.listen import Listener
from tests.factories import USING, ConsumerFactory
from tests.sessions import lock_timeout, query, session, wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.own_session,
    pytest.mark.timeout(120),
]
LARGE = 900_000
"""Bytes of a payload that is larger than the buffer of any socket."""


@pytest.fixture
def backend() -> Iterator[int]:
    """Yield the pid of the server process of this connection, which a test may stop."""
    [(pid,)] = query("SELECT pg_backend_pid()")
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        pytest.skip("the server runs elsewhere")
    yield pid
    with suppress(ProcessLookupError):  # its client may have cut it off
        os.kill(pid, signal.SIGCONT)
    connections[USING].close()


def stopped_for_a_moment(pid: int, work: Callable[[], object]) -> None:
    """Do the work while the server process reads nothing for half a second."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _state(pid) == "T")
    continuing = threading.Timer(0.5, os.kill, (pid, signal.SIGCONT))
    continuing.start()
    work()
    continuing.join()


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0]


def payloads() -> list[bytes]:
    return [os.urandom(LARGE) for _ in range(2)]


def stored() -> list[bytes]:
    return [bytes(payload) for payload in Message.objects.values_list("payload", flat=True)]


def test_large_messages_published_together_arrive(backend: int) -> None:
    consumer = ConsumerFactory.create()
    sent = payloads()
    stopped_for_a_moment(backend, lambda: publish_many(consumer.channel.name, sent))
    assert sorted(stored()) == sorted(sent)


def test_a_large_message_arrives_and_wakes_its_waiter(backend: int) -> None:
    consumer = ConsumerFactory.create()
    listen.wait(USING, [consumer.pk], uuid4(), timedelta(minutes=5))
    publish(consumer.channel.name, b"the first one finds the waiter")
    [sent, _other] = payloads()
    with closing(Listener(USING)) as listener:
        stopped_for_a_moment(backend, lambda: publish(consumer.channel.name, sent))
        assert listener.receive(timedelta(seconds=60)) == {consumer.pk}
    assert sent in stored()


def test_statements_that_run_together_arrive(backend: int) -> None:
    """Statements sent together are all answered, even if the server reads nothing for a while."""
    unknown = "{" + ",".join(["9000000000000000000"] * (LARGE // 20)) + "}"
    run = {"run_clock": 0.0, "run_begins": "{}", "run_seconds": "{}"}
    claims = [{"lease_token": uuid4(), "job_ids": unknown, **run} for _ in range(3)]

    def deliver() -> None:
        answers = statements.run_together(USING, "deliver", claims)
        assert len(answers) == len(claims)

    stopped_for_a_moment(backend, deliver)


@pytest.fixture
def _short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "LONGEST_SECONDS", 0.3)
    monkeypatch.setattr(deadlines, "GRACE_SECONDS", 0.3)
    monkeypatch.setattr(deadlines, "PASS_SECONDS", 0.05)


@pytest.mark.usefixtures("_short_limits")
@pytest.mark.parametrize("size", [10, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("messages", [1, 2])
def test_a_server_that_stays_away_costs_the_connection_and_not_the_caller(
    backend: int, size: int, messages: int
) -> None:
    """A statement raises at its deadline if the server does not react, even to a cancellation."""
    consumer = ConsumerFactory.create()
    os.kill(backend, signal.SIGSTOP)
    continuing = threading.Timer(60, os.kill, (backend, signal.SIGCONT))
    continuing.start()
    with pytest.raises(OperationalError):
        publish_many(consumer.channel.name, [bytes(size)] * messages)
    assert not continuing.finished.is_set(), "the deadline ended it, and not the server"
    continuing.cancel()
    os.kill(backend, signal.SIGCONT)
    connections[USING].close()
    publish_many(consumer.channel.name, [b"a new connection works"])
    assert b"a new connection works" in stored()


def test_a_publish_that_waits_for_a_lock_is_cancelled_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(statements, "LONGEST_SECONDS", 0.3)
    consumer = ConsumerFactory.create()
    with session() as other:
        other.execute("LOCK TABLE pulljobs_message IN EXCLUSIVE MODE")
        with pytest.raises(OperationalError, match="cancel"):
            publish(consumer.channel.name, b"x", message_id="1")
    assert stored() == []
    publish(consumer.channel.name, b"x", message_id="1")
    assert stored() == [b"x"], "the connection is fit for use"


def test_a_publish_that_waits_for_another_publisher_of_its_key_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(statements, "LONGEST_SECONDS", 0.3)
    consumer = ConsumerFactory.create(max_queued_per_key=1)
    with session() as other, lock_timeout():
        other.execute("INSERT INTO pulljobs_bounded_key VALUES (%s, 'a')", [consumer.pk])
        with pytest.raises(OperationalError, match="user request"):
            publish(consumer.channel.name, b"x", key="a")
    publish(consumer.channel.name, b"x", key="a")
    assert stored() == [b"x"], "the connection is fit for use"


def test_a_cancellation_that_meets_no_statement_is_repeated() -> None:
    connections[USING].ensure_connection()
    deadline = WorkDeadline(connections[USING], 0.0)
    with session() as other, deadline:
        other.execute("LOCK TABLE pulljobs_message IN EXCLUSIVE MODE")
        began = deadline.due
        wait_until(lambda: deadline.due > began)
        with pytest.raises(OperationalError, match="user request"):
            Message.objects.update(payload=b"")


def test_statements_without_a_thread_to_watch_them_run_without_a_limit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that may start no more threads, as in a small container, still publishes."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    consumer = ConsumerFactory.create()
    monkeypatch.setattr(deadlines, "_thread", None)
    monkeypatch.setattr(deadlines._unbounded, "_logged_at", -math.inf)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        publish(consumer.channel.name, b"x")
        publish(consumer.channel.name, b"y")
    assert stored() == [b"x", b"y"]
    assert not any(watched._raw is connections[USING].connection for watched in deadlines._watched)
    [message] = caplog.messages
    assert "no time limit" in message


def test_a_handler_of_the_log_may_publish_that_statements_have_no_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The warning is logged without the lock, for which every statement of the process waits."""
    texts: list[str] = []

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def handle(record: logging.LogRecord) -> bool:
        texts.append(record.getMessage())
        assert deadlines._starting.acquire(timeout=5), "the lock is held while the log is written"
        deadlines._starting.release()
        with Deadline(None, 1):
            return True

    monkeypatch.setattr(deadlines, "_thread", None)
    monkeypatch.setattr(deadlines._unbounded, "_logged_at", -math.inf)
    monkeypatch.setattr(deadlines.logger, "filters", [handle])
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with Deadline(None, 1):
            pass
    assert len(texts) == 1
