"""Servers of other versions and poolers, each in its own directory, on the loopback."""

import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import SystemRandom  # tests seed the other generators
from typing import Final

import psycopg

from example_project.postgres.binaries import TREES, installed
from tests import second

WHOLE: Final = os.environ.get("PULLJOBS_TEST_SERVERS") == "1"
START_SECONDS = 180
QUICK = {"fsync": "off", "max_connections": "120", "shared_buffers": "64MB"}


def free_port() -> int:
    """Pick a free port below the range from which the kernel assigns ports to other processes."""
    for port in SystemRandom().sample(range(15_000, 32_000), 1000):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port")


def wheel_programs(version: int) -> Path:
    return installed() / TREES[version] / "bin"


def server_user() -> int | None:
    """Return the id of a user to run servers that refuse root, or None if this is not root."""
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None


def run(*command: str | Path) -> None:
    done = subprocess.run(
        command,
        user=server_user(),
        cwd="/",
        env={"PATH": os.defpath, "LC_ALL": "C"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def own(directory: Path) -> Path:
    directory.mkdir(mode=0o700)
    user = server_user()
    if user is not None:
        os.chown(directory, user, -1)
    return directory


def reachable(programs: Path, directory: Path) -> Path:
    """Return the directory of the programs, or of a copy if the server's user cannot run them."""
    seen = subprocess.run(
        ["/bin/sh", "-c", 'test -x "$0"', programs / "postgres"], user=server_user(), check=False
    )
    if seen.returncode == 0:
        return programs
    tree = programs.parent
    for part in (tree, tree.parent / ".dylibs", tree.parent.parent / f"{tree.parent.name}.libs"):
        if part.is_dir():
            copy = directory / part.relative_to(tree.parent.parent)
            shutil.copytree(part, copy, ignore=shutil.ignore_patterns("include", "*.a"))
    for path in directory.rglob("*"):
        path.chmod(
            path.stat().st_mode | (0o055 if path.is_dir() or os.access(path, os.X_OK) else 0o044)
        )
    return directory / tree.relative_to(tree.parent.parent) / "bin"


@contextmanager
def postgres(programs: Path, directory: Path) -> Iterator[int]:
    """Run a new server during the block. Yield its port."""
    directory.chmod(0o711)
    programs = reachable(programs, directory)
    data, log, port = own(directory / "data"), own(directory / "log"), free_port()
    run(programs / "initdb", "--no-sync", "-A", "trust", "-U", "pulljobs", "-E", "UTF8", "-D", data)
    place = {"port": str(port), "listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
    options = " ".join(f"-c {name}='{value}'" for name, value in (QUICK | place).items())
    control = (programs / "pg_ctl", "-D", data, "-w", "-s")
    run(*control, "start", "-t", str(START_SECONDS), "-l", log / "log", "-o", options)
    try:
        yield port
    finally:
        run(*control, "stop", "-m", "immediate")


POOL = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
max_client_conn = 500
default_pool_size = 40
ignore_startup_parameters = extra_float_digits
"""


@contextmanager
def pgbouncer(program: Path, host: str, port: int, directory: Path) -> Iterator[int]:
    """Run PgBouncer in transaction mode in front of a server for the block. Yield its port."""
    directory.chmod(0o711)
    config, own_port = directory / "pgbouncer.ini", free_port()
    users = directory / "users.txt"
    users.write_text('"pulljobs" ""\n')
    config.write_text(POOL.format(host=host, port=port, own_port=own_port, users=users))
    for file in (config, users):
        file.chmod(0o644)
    pooler = subprocess.Popen(
        [program, "-q", config],
        user=server_user(),
        cwd="/",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(own_port)
        yield own_port
    finally:
        pooler.terminate()
        pooler.wait(START_SECONDS)


def wait_for(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(host="127.0.0.1", port=port, user="pulljobs", dbname="postgres").close()
        except psycopg.OperationalError:
            assert time.monotonic() < deadline, "the pooler did not start"
            time.sleep(0.05)
        else:
            return


STORAGE: Final = ("tests/storage", "tests/publishing", "tests/lake/without_spark/test_lag.py")
PLANS: Final = "tests/storage/test_plans.py"
WITHOUT_SERVER: Final = "tests/publishing/test_refusals.py"
"""Tests of messages that are refused before a server sees them."""


def storage_suite(port: int, *, pooled: bool = False, plans: bool = False, every: int = 1) -> str:
    """Run the storage tests on the server at this port, all or one in `every`. Return the output.

    Tests of plans run only with `plans`, because they take long. The main test run has them.
    """
    left_out = [WITHOUT_SERVER] if plans else [WITHOUT_SERVER, PLANS]
    return suite(
        *STORAGE,
        *(f"--ignore={path}" for path in left_out),
        DATABASE_URL=f"postgres://pulljobs@127.0.0.1:{port}/postgres",
        DATABASE_POOLED="1" if pooled else "",
        PULLJOBS_TEST_EVERY=str(every),
    )


def suite(*arguments: str, **environment: str) -> str:
    """Run pytest with these arguments and environment. Check that it passes, return its output."""
    done = subprocess.run(
        # Databases go with their server, and a pooler would keep connections to dropped ones open.
        # One process, because a second one would collect all tests again and make a database.
        [sys.executable, "-m", "pytest", "--reuse-db", *arguments],
        env={
            **{name: value for name, value in os.environ.items() if "PYTEST" not in name},
            **second.NOT,
            "TEST_DATABASE": "",
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6_000:]
    return done.stdout
