"""A connection that falls silent, without a reset, is noticed and replaced within a bound."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.core.checks import run_checks
from django.db import OperationalError, connections

from pulljobs.engine import deadlines
from pulljobs.engine.connection_bounds import CONNECTION_BOUNDS
from pulljobs.engine.deadlines import WorkDeadline
from pulljobs.models import Consumer
from pulljobs.storage import listen, sessions, statements, transactions
from pulljobs.storage.listen import Listener
from pyspark_pulljobs.connecting import connect, parse_dsn
from pyspark_pulljobs.database_session import PlannedSession, Session
from tests.factories import USING
from tests.sessions import PATIENCE_SECONDS, Thread, query, wait_until
from tests.silent import SilentProxy, behind, silent_proxy

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.own_session,
    pytest.mark.timeout(180),
]
ON_A_HOST = {"HOST": "db.example.com"}
MANY, GRACE = 8, 4.0
needs_linux = pytest.mark.skipif(
    not hasattr(socket, "TCP_USER_TIMEOUT"), reason="TCP_USER_TIMEOUT exists on Linux only"
)


@pytest.fixture
def proxy() -> Iterator[SilentProxy]:
    with silent_proxy() as proxy:
        yield proxy


@pytest.fixture
def _short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "PROBE_SECONDS", 0.2)
    monkeypatch.setattr(listen, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(deadlines, "GRACE_SECONDS", 0.3)
    monkeypatch.setattr(deadlines, "PASS_SECONDS", 0.05)


def bounds_of(raw: "psycopg.Connection[Any]") -> dict[str, int]:
    """Return the keepalive options and the timeout that the kernel has for a connection."""
    with socket.socket(fileno=raw.pgconn.socket) as borrowed:
        try:
            return {
                "keepalives": borrowed.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                "keepalives_idle": borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                "tcp_user_timeout": borrowed.getsockopt(
                    socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT
                ),
            }
        finally:
            borrowed.detach()


def expected(**changed: int) -> dict[str, int]:
    names = ("keepalives", "keepalives_idle", "tcp_user_timeout")
    return {name: CONNECTION_BOUNDS[name] for name in names} | changed


def dsn_through(proxy: SilentProxy) -> str:
    known = connections[USING].get_connection_params()
    names = f"dbname={known['dbname']} user={known['user']}"
    return parse_dsn(
        {"dsn": f"host=127.0.0.1 port={proxy.port} {names} sslmode=disable gssencmode=disable"}
    )


def dedicated(proxy: SilentProxy, **options: int) -> dict[str, int]:
    """Return the `bounds_of` a connection that a loop of pulljobs opens through the proxy."""
    with behind(proxy, **options) as wrapper:
        sessions.dedicate(USING)
        wrapper.ensure_connection()
        return bounds_of(wrapper.connection)


@needs_linux
def test_connections_of_loops_have_bounds(proxy: SilentProxy) -> None:
    assert Thread(lambda: dedicated(proxy)).result() == expected()


@needs_linux
def test_options_of_the_project_win(proxy: SilentProxy) -> None:
    chosen = Thread(lambda: dedicated(proxy, tcp_user_timeout=5000)).result()
    assert chosen == expected(tcp_user_timeout=5000)


@needs_linux
def test_connections_that_listen_have_bounds(proxy: SilentProxy) -> None:
    with behind(proxy), closing(Listener(USING)) as listener:
        assert bounds_of(listener._connection) == expected()
    assert CONNECTION_BOUNDS.items() <= listen.make_connection_params(USING).items()


def test_a_listener_that_is_refused_leaves_no_session() -> None:
    """A listener whose LISTEN fails closes its session, which the traceback would keep open."""
    known = open_sessions()
    with pytest.raises(psycopg.Error) as refused:
        Listener(USING, wakers={"": lambda: None})
    wait_until(lambda: open_sessions() <= known)
    assert "zero-length" in str(refused.value)


def open_sessions() -> set[int]:
    return {
        pid
        for (pid,) in query(
            "SELECT pid FROM pg_stat_activity"
            " WHERE datname = current_database() AND backend_type = 'client backend'"
        )
    }


@needs_linux
def test_connections_of_spark_have_bounds(proxy: SilentProxy) -> None:
    dsn = dsn_through(proxy)
    with closing(connect(dsn)) as connection:
        assert bounds_of(connection) == expected(tcp_user_timeout=60_000)
    assert f"connect_timeout={CONNECTION_BOUNDS['connect_timeout']}" in dsn


def work_on(session: Session, fall_silent: Callable[[], object], work: str) -> None:
    """Do a statement, a commit or a copy in a session of Spark whose server falls silent."""
    if work == "statement":
        fall_silent()
        session.run("server", {})
    elif work == "commit":
        with session.atomic():
            session.run("server", {})
            fall_silent()
    else:
        session.execute("CREATE TEMP TABLE copied (n int)")
        into = "COPY copied FROM STDIN"
        with session.connection.cursor() as cursor, session.enclosing(cursor.copy(into)) as copy:
            copy.write("1")
            fall_silent()


@pytest.mark.usefixtures("_short_limits")
@pytest.mark.parametrize("work", ["statement", "commit", "copy"])
def test_work_of_spark_on_a_silent_connection_ends(proxy: SilentProxy, work: str) -> None:
    def run() -> None:
        with closing(connect(dsn_through(proxy))) as connection:
            work_on(PlannedSession(connection, 0.3), proxy.silence, work)

    with pytest.raises(psycopg.OperationalError):
        Thread(run).result()


def undo() -> None:
    raise psycopg.Rollback


@pytest.mark.usefixtures("_short_limits")
def test_a_session_of_spark_goes_on_after_a_block_that_undoes_itself(proxy: SilentProxy) -> None:
    with closing(connect(dsn_through(proxy))) as connection:
        session = PlannedSession(connection)
        with session.atomic():
            session.execute("CREATE TEMP TABLE undone (n int)")
            undo()
        [(table,)] = session.execute("SELECT to_regclass('undone')")
        assert table is None


@pytest.mark.usefixtures("_short_limits")
@pytest.mark.parametrize("work", ["statement", "commit"])
def test_a_pass_of_a_loop_on_a_silent_connection_ends(proxy: SilentProxy, work: str) -> None:
    def pass_on() -> None:
        with behind(proxy):
            sessions.dedicate(USING)
            with sessions.bounded_pass(USING, 0.3), transactions.brief(USING):
                statements.run(USING, "server", {})
                proxy.silence()
                if work == "statement":
                    Consumer.objects.using(USING).exists()

    with pytest.raises(OperationalError):
        Thread(pass_on).result()


@pytest.mark.usefixtures("_short_limits")
def test_a_worker_notices_that_its_listener_is_silent(proxy: SilentProxy) -> None:
    def listen_on() -> None:
        with behind(proxy), closing(Listener(USING)) as listener:
            assert listener.receive(timedelta(0)) == set()
            proxy.silence()
            while True:
                listener.receive(timedelta(seconds=0.1))

    with pytest.raises(psycopg.OperationalError):
        Thread(listen_on).result()


@pytest.mark.usefixtures("_short_limits")
def test_a_server_of_long_polls_notices_that_its_listener_is_silent(proxy: SilentProxy) -> None:
    with behind(proxy):
        params = listen.make_connection_params(USING)

    async def listen_on() -> None:
        async with listen.listening(params) as notified:
            proxy.silence()
            async for _consumer_id in notified:
                raise AssertionError

    with pytest.raises(psycopg.OperationalError):
        asyncio.run(asyncio.wait_for(listen_on(), PATIENCE_SECONDS))


def use(proxy: SilentProxy, fall_silent: Callable[[], object]) -> None:
    """Run a query on this thread before and after the proxy falls silent, with a deadline."""
    with behind(proxy) as wrapper, wrapper.cursor() as cursor:
        cursor.execute("SELECT 1")
        fall_silent()
        with WorkDeadline(wrapper, 0.3):
            cursor.execute("SELECT 1")


@pytest.mark.usefixtures("_short_limits")
def test_work_on_a_silent_connection_ends(proxy: SilentProxy) -> None:
    with pytest.raises(OperationalError):
        Thread(lambda: use(proxy, proxy.silence)).result()


@pytest.mark.usefixtures("_short_limits")
def test_a_watch_that_died_is_replaced(proxy: SilentProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(deadlines, "IDLE_PASSES", 0)
        wait_until(lambda: deadlines.NAME not in {each.name for each in threading.enumerate()})
    dead = threading.Thread(target=lambda: None)
    dead.start()
    dead.join()
    deadlines._thread = dead  # nothing restores it: the watch that replaces it goes on
    with pytest.raises(OperationalError):
        Thread(lambda: use(proxy, proxy.silence)).result()


@pytest.mark.usefixtures("_short_limits")
def test_silent_connections_end_together(
    proxy: SilentProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work on many silent connections ends at once, although each cancel request takes long."""
    monkeypatch.setattr(deadlines, "GRACE_SECONDS", GRACE)
    silenced = threading.Barrier(MANY, action=proxy.silence)
    threads = [Thread(lambda: use(proxy, silenced.wait)) for _ in range(MANY)]
    start = time.monotonic()
    for thread in threads:
        with pytest.raises(OperationalError):
            thread.result()
    assert time.monotonic() - start < MANY * GRACE / 2


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"HOST": ""}, None),
        ({"HOST": "/run/postgresql"}, None),
        (ON_A_HOST, "'connect_timeout': 10, 'keepalives': 1"),
        ({**ON_A_HOST, "OPTIONS": {"service": "shop"}}, None),
        ({**ON_A_HOST, "OPTIONS": CONNECTION_BOUNDS}, None),
        ({**ON_A_HOST, "OPTIONS": {**CONNECTION_BOUNDS, "keepalives": 0}}, None),
    ],
)
def test_a_check_names_the_options_that_a_database_lacks(
    changes: dict[str, Any], missing: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = connections[USING]
    given = {**wrapper.settings_dict, "OPTIONS": {}, **changes}
    monkeypatch.setattr(wrapper, "settings_dict", given)
    checks = run_checks(include_deployment_checks=True)
    hints = [check.hint or "" for check in checks if check.id == "pulljobs.W010"]
    assert [str(missing) in hint for hint in hints] == ([True] if missing else [])
