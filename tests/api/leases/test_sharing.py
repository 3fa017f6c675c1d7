"""Requests that come together: each gets its own answer from statements that all of them share."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import pytest

from pulljobs import ids, pulling
from pulljobs.api.leases import ack
from pulljobs.api.leases.long_poll import threads, waiters
from pulljobs.models import ArchivedJob, Job
from pulljobs.storage import protocol, sessions
from tests.api.caller import publish, subscription
from tests.api.leases.serving import LONG, Puller, outcome_of, wait_briefly
from tests.sessions import Session, Thread, backend, query, session, wait_until

CANCEL_THE_END_OF = """
CREATE FUNCTION cancel_the_end() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = 'query_canceled';
END $$;
CREATE TRIGGER cancel_the_end BEFORE DELETE ON pulljobs_job FOR EACH ROW WHEN (OLD.id = {})
EXECUTE FUNCTION cancel_the_end();
"""


@contextmanager
def busy_threads() -> Iterator[threads.DatabaseThreads]:
    """Keep the threads of the server busy for the block, so that requests queue up together."""
    running, over = waiters.running_waiters(), threading.Event()
    assert running is not None
    began = threading.Barrier(threads.THREADS + 1)

    def wait() -> None:
        began.wait(LONG)
        over.wait(LONG)

    for _ in range(threads.THREADS):
        running._threads.submit(wait)
    began.wait(LONG)
    try:
        yield running._threads
    finally:
        over.set()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the called functions that authenticate requests or settle jobs, in order."""
    called: list[str] = []
    settling = ((pulling, "finish"), (pulling, "finish_together"))
    for module, name in ((protocol, "find_callers"), *settling):
        function = getattr(module, name)

        def counted(*args: Any, name: str = name, function: Any = function, **more: Any) -> Any:
            called.append(name)
            return function(*args, **more)

        monkeypatch.setattr(module, name, counted)
    return called


@pytest.fixture
def other(client: httpx.Client, base: str, puller: Puller) -> Puller:
    return Puller(client, base, subscription("invoices", "a"))


def settle(sender: Puller, *results: Any) -> Thread:
    """Send an ack on a thread, whose result is the answer."""
    return Thread(partial(sender.post, "ack", Results=results))


def test_requests_that_come_together_share_statements(
    client: httpx.Client, base: str, puller: Puller, other: Puller, calls: list[str]
) -> None:
    stranger = Puller(client, base, subscription("invoices", "b"))
    stranger.tokens["X-Broker-Consumer-Token"] = "guessed"
    publish("orders", key="k"), publish("orders"), publish("orders"), publish("invoices")
    [first], [second, third], [theirs] = puller.taken(), puller.taken(Batch=2), other.taken()
    third["LeaseToken"] = first["LeaseToken"]
    calls.clear()
    asked: list[Callable[[], Thread]] = [
        partial(settle, puller, outcome_of(first, "DELIVERED")),
        partial(settle, puller, outcome_of(second, "RETRY"), outcome_of(theirs, "DEAD")),
        partial(settle, puller, outcome_of(third, "DELIVERED")),
        partial(settle, other, outcome_of(theirs, "DELIVERED")),
        partial(settle, other, outcome_of(first, "DEAD")),
        partial(settle, stranger, outcome_of(theirs, "DEAD")),
        partial(Thread, partial(puller.post, "ack", b"{")),
    ]
    answers = []
    with busy_threads() as database:
        for number, ask in enumerate(asked, start=1):
            answers.append(ask())
            _await_arrival(database, number)
    assert [_report_of(answer) for answer in answers] == [
        ["ok"], ["ok", "not_found"], ["lease_lost"], ["ok"], ["not_found"],
        "wrong_consumer_token", "bad_body",
    ]  # fmt: skip
    assert calls == ["find_callers", "finish_together"]
    assert ArchivedJob.objects.filter(state="DELIVERED").count() == 2


def test_a_locked_row_delays_its_own_caller_only(
    puller: Puller, other: Puller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acks of other jobs do not wait for a locked row, and one thread stays free for them."""
    # Until the test unlocks the rows.
    monkeypatch.setattr(ack, "LOCK_PAUSES", (0.05,) * 1000)
    monkeypatch.setattr(sessions, "LIMIT_WAITS", f"SET lock_timeout = '{LONG} s'")
    for _ in range(6):
        publish("orders"), publish("invoices")
    [free, *locked], theirs = puller.taken(Batch=6), other.taken(Batch=6)
    with session() as holder:
        locked_ids = [ids.decode(job["ID"]) for job in locked]
        holder.execute("SELECT FROM pulljobs_job WHERE id = ANY(%s) FOR UPDATE", [locked_ids])
        with busy_threads() as database:
            delayed = [settle(puller, *(outcome_of(job, "DELIVERED") for job in (locked[0], free)))]
            _await_arrival(database, 1)
            strange = {**locked[-1], "LeaseToken": theirs[0]["LeaseToken"]}
            results = (outcome_of(job, "DELIVERED") for job in (theirs[0], strange))
            answer = settle(other, *results)
            _await_arrival(database, 2)
        assert _answered_meanwhile(answer, holder) == 0, "it waited for the row of another caller"
        assert _report_of(answer) == ["ok", "not_found"]
        for number, job in enumerate(locked[1 : threads.THREADS + 1], start=1):  # each alone
            delayed.append(settle(puller, outcome_of(job, "DELIVERED")))
            wait_briefly(partial(_waits, holder, min(number, threads.THREADS - 1)))
        for job in theirs[1:]:
            answer = settle(other, outcome_of(job, "DELIVERED"))
            assert _answered_meanwhile(answer, holder) < threads.THREADS, "no thread was left"
            assert _report_of(answer) == ["ok"]
        assert delayed[0].is_alive()
        assert ArchivedJob.objects.count() == len(theirs) + 1
    assert [_report_of(answer) for answer in delayed] == [["ok", "ok"], *[["ok"]] * threads.THREADS]


@pytest.mark.parametrize(
    ("fields", "key", "table"),
    [
        ({"exclusive_keys": True}, "k", "pulljobs_exclusive_key"),
        ({"max_in_flight_per_key": 1}, None, "pulljobs_flow_key"),
    ],
)
def test_a_locked_key_delays_its_own_caller_only(
    client: httpx.Client,
    base: str,
    puller: Puller,
    monkeypatch: pytest.MonkeyPatch,
    fields: dict[str, Any],
    key: str | None,
    table: str,
) -> None:
    """The settlement of a job waits while its key's row is locked. Those of other callers do not.

    Where keys take turns, all jobs without a key have one row in common.
    """
    monkeypatch.setattr(sessions, "LIMIT_WAITS", f"SET lock_timeout = '{LONG} s'")
    keyed = Puller(client, base, subscription("keyed", "k", **fields))
    publish("orders"), publish("keyed", key=key)
    [job], [its_job] = puller.taken(), keyed.taken()
    with session() as holder:
        holder.execute(f"SELECT FROM {table} FOR UPDATE")
        with busy_threads() as database:
            delayed = settle(keyed, outcome_of(its_job, "DELIVERED"))
            _await_arrival(database, 1)
            answer = settle(puller, outcome_of(job, "DELIVERED"))
            _await_arrival(database, 2)
        assert _report_of(answer) == ["ok"]
        wait_briefly(partial(_waits, holder, 1))
    assert _report_of(delayed) == ["ok"]


def test_an_error_of_the_database_stays_with_the_caller_who_caused_it(
    puller: Puller, other: Puller
) -> None:
    """A database error of one ack fails only that ack, not the others in the same statement."""
    publish("orders"), publish("orders"), publish("orders"), publish("invoices")
    [bad, retried, left], [theirs] = puller.taken(Batch=3), other.taken()
    query(CANCEL_THE_END_OF.format(ids.decode(bad["ID"])))
    try:
        with busy_threads() as database:
            gone = puller.send("ack", Results=[outcome_of(left, "DELIVERED")])
            _await_arrival(database, 1)
            answers = [
                settle(puller, outcome_of(bad, "DELIVERED")),
                settle(puller, outcome_of(retried, "RETRY")),
                settle(other, outcome_of(theirs, "DELIVERED")),
            ]
            _await_arrival(database, 4)
            gone.close()
            wait_briefly(database._arrived[0].future.cancelled)
        assert [_report_of(answer) for answer in answers] == ["unavailable", ["ok"], ["ok"]]
    finally:
        query("DROP FUNCTION cancel_the_end CASCADE")
    assert Job.objects.get(pk=ids.decode(retried["ID"])).retry_count == 1
    assert puller.statuses(*(outcome_of(job, "DELIVERED") for job in (bad, left))) == ["ok", "ok"]


def _await_arrival(database: threads.DatabaseThreads, requests: int) -> None:
    wait_briefly(lambda: len(database._arrived) == requests)


def _answered_meanwhile(answer: Thread, holder: Session) -> int:
    """Wait for an answer. Return the largest number of sessions that waited for the locks."""
    seen = [_count_waiting(holder)]

    def is_over() -> bool:
        seen.append(_count_waiting(holder))
        return not answer.is_alive()

    wait_until(is_over)
    return max(seen)


def _waits(holder: Session, sessions: int) -> bool:
    return _count_waiting(holder) >= sessions


def _count_waiting(holder: Session) -> int:
    """Return the number of sessions that wait for a lock of the holder."""
    [(count,)] = query(
        "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))",
        [backend(holder)],
    )
    return int(count)


def _report_of(answer: Thread) -> Any:
    """Return the status of each item of an ack, or the error code if the request was refused."""
    content = answer.result().json()
    return content.get("code") or [result["Status"] for result in content["Results"]]
