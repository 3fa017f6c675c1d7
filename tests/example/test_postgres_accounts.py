"""Accounts that may run the embedded server, and the errors for the others."""

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from example_project.postgres.binaries import TREES, installed
from example_project.state import BASE_DIR
from tests.example.processes import (
    USER,
    EmbeddedProject,
    User,
    kill_server,
    open_directory,
    postmaster,
)
from tests.requirements import not_run

pytestmark = pytest.mark.processes

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@pytest.fixture
def checkout() -> Iterator[EmbeddedProject]:
    with open_directory() as directory:
        yield from _checked_out(directory)


@pytest.fixture
def odd_checkout() -> Iterator[EmbeddedProject]:
    with open_directory() as directory:
        yield from _checked_out(directory / 'one, two $HOME `x` "it\'s"')


def _checked_out(directory: Path) -> Iterator[EmbeddedProject]:
    """Copy the code that starts the server, and yield it as a project with a home of its own."""
    copy = EmbeddedProject(directory, directory / ".pulljobs")
    copy.environment["HOME"] = str(directory)
    del copy.environment["PULLJOBS_STATE_DIR"]
    _copy_code(directory)
    with closing(copy):
        yield copy


def _copy_code(directory: Path) -> None:
    parts = ("example_project/postgres", "example_project/state.py", "example_project/__init__.py")
    sources = [(BASE_DIR / part, directory / part) for part in parts]
    wheel = installed()
    for part in (f"{wheel.name}/{TREES[18]}", f"{wheel.name}.libs", f"{wheel.name}/.dylibs"):
        sources.append((wheel.parent / part, directory / part))
    for source, target in sources:
        target.parent.mkdir(exist_ok=True, parents=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("include"))
        elif source.exists():
            shutil.copy(source, target)
    (directory / wheel.name / "__init__.py").touch()


def test_an_ordinary_user_runs_the_server(checkout: EmbeddedProject) -> None:
    user = _ordinary_user(checkout)
    run = user.connect()
    postmaster(run)
    assert run.stat().st_uid == checkout.code.stat().st_uid
    assert run.is_relative_to(checkout.cluster)


def test_an_ordinary_user_may_keep_the_state_at_home(odd_checkout: EmbeddedProject) -> None:
    """The server uses the account's state directory if the project's path is unfit for a socket."""
    home = odd_checkout.code.parent
    state = home / ".local" / "state"
    state.mkdir(parents=True)
    odd_checkout.environment["HOME"] = str(home)
    postmaster(_ordinary_user(odd_checkout, state).connect())
    assert odd_checkout.home.is_relative_to(state)


def _ordinary_user(checkout: EmbeddedProject, *owned: Path) -> User:
    if os.geteuid() != 0:
        return checkout.user()
    uid = pwd.getpwnam("nobody").pw_uid
    for directory in (checkout.code, *owned):
        os.chown(directory, uid, -1)
    return checkout.user(uid=uid, python=_python_for(uid))


def test_wheel_may_be_under_any_path(odd_checkout: EmbeddedProject) -> None:
    postmaster(odd_checkout.user().connect())


def _python_for(uid: int) -> str:
    """Return the path of a Python that this account may run, or skip the test."""
    modern = "import sys; sys.exit(sys.version_info < (3, 11))"
    for python in (os.path.realpath(shutil.which("python3") or ""), "/usr/bin/python3"):
        try:
            subprocess.run([python, "-c", modern], user=uid, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return python
    return not_run("a Python 3.11 that other users can run")


@root_only
def test_root_with_everything_open_keeps_all_in_the_project(checkout: EmbeddedProject) -> None:
    run = checkout.user().connect()
    assert run.is_relative_to(checkout.cluster)
    assert run.stat().st_uid == pwd.getpwnam("nobody").pw_uid


@root_only
def test_root_with_a_closed_home_keeps_the_data_elsewhere(checkout: EmbeddedProject) -> None:
    """The server runs as another account, which cannot enter the project directory of root."""
    checkout.code.chmod(0o700)
    first = checkout.user()
    run = first.connect()
    assert not run.is_relative_to(checkout.code)
    assert run.is_relative_to("/var/lib" if os.access("/var/lib", os.W_OK) else "/var/tmp")
    assert checkout.user().connect() == run
    assert checkout.code.stat().st_mode & 0o777 == 0o700
    kill_server(run)
    assert first.connect() == run


@root_only
def test_copy_of_a_closed_project_has_a_server_of_its_own(checkout: EmbeddedProject) -> None:
    """The copy gets data and a server elsewhere, although its pointer file names the original's."""
    checkout.code.chmod(0o700)
    original = checkout.user()
    run = original.connect()
    server = postmaster(run)
    with closing(_copied_state(checkout)) as copy:
        user = copy.user()
        other = user.connect()
        assert other != run
        assert postmaster(other) != server == postmaster(original.connect())
        assert user.connect() == other


@root_only
def test_moved_project_keeps_its_data(checkout: EmbeddedProject) -> None:
    checkout.code.chmod(0o700)
    run = checkout.user().connect()
    checkout.end_users()
    with closing(EmbeddedProject(checkout.code, checkout.code / "moved")) as moved:
        checkout.cluster.parent.rename(moved.cluster.parent)
        assert moved.user().connect() == run


@root_only
def test_no_second_server_starts_over_the_data_of_a_live_one(checkout: EmbeddedProject) -> None:
    """A copy is refused while the server of its removed original runs, even without lock files."""
    checkout.code.chmod(0o700)
    run = checkout.user().connect()
    server = postmaster(run)
    with closing(_copied_state(checkout)) as copy, closing(checkout):
        shutil.rmtree(checkout.cluster)
        socket = run / ".s.PGSQL.5432"
        socket.rename(socket.with_suffix(".away"))
        impatient = "from example_project.postgres import launcher; launcher.ORPHAN_SECONDS = 0\n"
        assert "some of its processes live on" in _complaint(copy, program=impatient + USER)
        socket.with_suffix(".away").rename(socket)
        assert postmaster(run) == server


def _copied_state(checkout: EmbeddedProject) -> EmbeddedProject:
    copy = EmbeddedProject(checkout.code, checkout.code / "copy")
    shutil.copytree(checkout.cluster, copy.cluster)
    return copy


@root_only
def test_root_runs_the_server_as_the_user_who_made_it(checkout: EmbeddedProject) -> None:
    uid = pwd.getpwnam("daemon").pw_uid
    os.chown(checkout.code, uid, -1)
    user = checkout.user(uid=uid, python=_python_for(uid))
    user.connect()
    user.kill()
    run = checkout.user().connect()
    postmaster(run)
    assert run.stat().st_uid == uid


@root_only
def test_server_of_another_user_is_refused(checkout: EmbeddedProject) -> None:
    checkout.user().connect()
    checkout.code.chmod(0o755)
    uid = pwd.getpwnam("daemon").pw_uid
    assert "be the user who made it" in _complaint(checkout, uid=uid, python=_python_for(uid))


def test_a_missing_wheel_is_reported_with_its_command(checkout: EmbeddedProject) -> None:
    shutil.rmtree(checkout.code / installed().name)
    # With -S the interpreter outside of the virtual environment searches only PYTHONPATH.
    program = "from example_project.postgres.launcher import ensure_running; ensure_running()"
    done = subprocess.run(
        [os.path.realpath(sys.executable), "-S", "-c", program],
        env=checkout.environment,
        cwd=checkout.code,
        capture_output=True,
        text=True,
    )
    assert 'run `python -m pip install "pulljobs[demo]"`' in done.stderr


def test_an_unknown_version_is_refused_with_the_known_ones(checkout: EmbeddedProject) -> None:
    checkout.environment["PULLJOBS_POSTGRES_VERSION"] = "17"
    assert "set PULLJOBS_POSTGRES_VERSION to 18 or 16" in _complaint(checkout)


def _complaint(project: EmbeddedProject, **how: str | int) -> str:
    user: User = project.user(**how)
    assert user.process.stdin
    user.process.stdin.write("\n")
    _, errors = user.process.communicate()
    return str(errors)
