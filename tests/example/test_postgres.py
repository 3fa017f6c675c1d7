"""Embedded PostgreSQL server of the example project: its start, sharing, recovery and end."""

import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.example.processes import (
    USER,
    EmbeddedProject,
    kill_server,
    postmaster,
    project,
    sleeping,
    slow_recovery,
    wait_until,
)

DJANGO = """
import sys
from django.conf import settings
settings.configure(
    DATABASES={"default": {"ENGINE": "example_project.postgres", "NAME": "pulljobs",
                           "USER": "pulljobs"}}
)
import django
django.setup()
from django.db import connection
for line in sys.stdin:
    connection.close()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    print(connection.get_connection_params()["host"], flush=True)
"""

HURRIED = """
from example_project.postgres import launcher
launcher.SLOW_SECONDS = 0.1
"""

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedProject]:
    with project() as made:
        yield made


@pytest.fixture
def shared(cluster: EmbeddedProject) -> Iterator[EmbeddedProject]:
    """Yield an embedded project whose data are made once. Its server stops after every test."""
    yield cluster
    cluster.end_users()


def test_processes_that_start_at_once_share_one_server(shared: EmbeddedProject) -> None:
    log = shared.cluster / "run" / "server.log"
    before = log.read_text().count("starting PostgreSQL") if log.exists() else 0
    users = [shared.user() for _ in range(4)]
    for user in users:
        user.ask()
    directories = {user.answer() for user in users}
    assert directories == {log.parent}
    assert log.read_text().count("starting PostgreSQL") == before + 1


def test_server_lives_as_long_as_its_last_user(shared: EmbeddedProject) -> None:
    first, last = shared.user(), shared.user()
    server = postmaster(first.connect())
    last.connect()
    first.kill()
    assert postmaster(last.connect()) == server
    last.kill()
    wait_until(shared.stopped)


def test_a_user_that_comes_while_the_server_stops_gets_a_new_server(
    shared: EmbeddedProject,
) -> None:
    user = shared.user()
    user.connect()
    for _ in range(5):
        following = shared.user()
        user.kill()
        user = following
        postmaster(user.connect())
    user.kill()
    wait_until(shared.stopped)


def test_forked_child_is_a_user(shared: EmbeddedProject) -> None:
    user = shared.user(
        program="import os\n"
        "from example_project.postgres.launcher import ensure_running\n"
        "run = ensure_running()\n"
        "if not os.fork():\n"
        "    print(run, os.getpid(), flush=True)\n"
        "    input()\n"
    )
    run, child = str(user.answer()).rsplit(" ", 1)
    server = postmaster(Path(run))
    os.kill(user.process.pid, signal.SIGKILL)
    user.process.wait()
    other = shared.user()
    assert postmaster(other.connect()) == server
    other.kill()
    assert postmaster(Path(run)) == server
    os.kill(int(child), signal.SIGKILL)
    wait_until(shared.stopped)


def test_killed_server_is_started_again(shared: EmbeddedProject) -> None:
    user = shared.user()
    server = postmaster(user.connect())
    kill_server(shared.cluster / "run")
    assert postmaster(user.connect()) != server
    user.kill()
    wait_until(shared.stopped)


def test_a_user_that_is_killed_while_the_server_starts_leaves_no_server(
    shared: EmbeddedProject,
) -> None:
    shared.user().connect()
    shared.end_users()
    with slow_recovery(shared):
        user = shared.user()
        user.ask()
        wait_until(lambda: not shared.stopped() and _says(shared, "starting"))
        user.kill()
        wait_until(shared.stopped)
    postmaster(shared.user().connect())


def test_recovery_may_take_its_time(shared: EmbeddedProject) -> None:
    """While a server recovers, its users wait and get a message that says so."""
    shared.user().connect()
    shared.end_users()
    with slow_recovery(shared):
        user = shared.user(program=HURRIED + USER)
        user.ask()
        assert user.process.stderr
        message = user.process.stderr.readline()
    assert "still starting: after a crash it recovers first" in message
    assert f"{shared.cluster}/run/server.log" in message
    postmaster(user.answer())


def test_a_server_that_does_not_start_is_reported_with_advice(shared: EmbeddedProject) -> None:
    user = shared.user()
    user.connect()
    kill_server(shared.cluster / "run")
    settings = shared.home / "data" / "postgresql.conf"
    before = settings.read_text()
    settings.write_text("no_setting = 1")
    user.ask()
    assert user.process.stderr
    assert f"remove {settings.parent}." in user.process.stderr.read()
    settings.write_text(before)
    postmaster(shared.user().connect())


def test_killed_watcher_is_replaced_by_the_next_user(shared: EmbeddedProject) -> None:
    user = shared.user()
    user.connect()
    wait_until(
        lambda: len(_watchers(shared)) == 1
    )  # the watcher of the previous server may still be ending
    os.kill(_watchers(shared)[0], signal.SIGKILL)
    last = shared.user()
    last.connect()
    user.kill()
    last.kill()
    wait_until(shared.stopped)


def test_pid_file_of_a_dead_server_does_not_hinder(shared: EmbeddedProject) -> None:
    """A server starts although its old process id now belongs to another process."""
    user = shared.user()
    run = user.connect()
    kill_server(run)
    pid_file = run.parent / "data" / "postmaster.pid"
    owner = pid_file.stat().st_uid
    with sleeping(owner) as pid:
        pid_file.write_text("\n".join([str(pid), *pid_file.read_text().splitlines()[1:]]))
        postmaster(user.connect())


def test_django_connects_again_after_the_server_was_killed(shared: EmbeddedProject) -> None:
    user = shared.user(program=DJANGO)
    run = user.connect()
    kill_server(run)
    assert user.connect() == run


def test_no_other_account_can_connect(shared: EmbeddedProject) -> None:
    run = shared.user().connect()
    for directory in (run, run.parent / "data"):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    with psycopg.connect(host=str(run), user="pulljobs", dbname="pulljobs") as connection:
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)


def test_other_version_has_its_own_server() -> None:
    with project(version=16) as older:
        run = older.user().connect()
        with psycopg.connect(host=str(run), user="pulljobs", dbname="pulljobs") as connection:
            assert connection.info.server_version // 10_000 == 16


@pytest.mark.parametrize("name", ["x" * 120, 'one, two $HOME `x` "it\'s"'])
def test_any_path_works(name: str) -> None:
    with project(state=name) as odd:
        postmaster(odd.user().connect())


def test_copy_has_a_socket_of_its_own() -> None:
    """A copied state gets a server and a socket directory of its own.

    The paths of these states are too long for sockets, so a pointer file names the directory.
    """
    with project(state="x" * 120) as original, project(state="y" * 120) as copy:
        original.user().connect()
        original.end_users()
        subprocess.run(["cp", "-a", original.cluster.parent, copy.cluster.parent], check=True)
        servers = {postmaster(user.connect()) for user in (original.user(), copy.user())}
        assert len(servers) == 2
        assert servers == {postmaster(user.connect()) for user in original.users + copy.users}


def test_state_may_be_moved_to_where_its_path_is_too_long() -> None:
    with project(state="x") as before, project(state="y" * 120) as after:
        before.user().connect()
        before.end_users()
        before.cluster.parent.rename(after.cluster.parent)
        postmaster(after.user().connect())


def test_socket_goes_along_when_the_state_is_moved() -> None:
    with project(state="x" * 120) as before, project(state="y" * 120) as after:
        run = before.user().connect()
        before.end_users()
        before.cluster.parent.rename(after.cluster.parent)
        assert after.user().connect() == run
        postmaster(run)


def _says(project: EmbeddedProject, status: str) -> bool:
    """Return True if the last line of the server's pid file has this status."""
    file = project.home / "data" / "postmaster.pid"
    return file.exists() and file.read_text().split()[-1:] == [status]


def _watchers(project: EmbeddedProject) -> list[int]:
    return [
        int(entry.name)
        for entry in Path("/proc").glob("[0-9]*")
        if str(project.cluster).encode() in _command(entry) and b"watcher.py" in _command(entry)
    ]


def _command(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
