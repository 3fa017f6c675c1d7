"""`manage.py demo` as a process, and a view of its database from outside."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import psycopg
from django.db import connections
from psycopg import sql

from example_project.state import BASE_DIR
from tests import second

PATIENCE_SECONDS = 180
Session = psycopg.Connection[Any]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.02)


@contextmanager
def own_database() -> Iterator[tuple[str, Session]]:
    """Create a database on the tests' server for the block. Yield its URL and a session."""
    known = connections["default"].get_connection_params()
    place = {key: known[key] for key in ("host", "port", "user", "password") if known.get(key)}
    name = f"census_{uuid4().hex}"
    with psycopg.connect(**place, dbname="postgres", autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            with psycopg.connect(**place, dbname=name, autocommit=True) as session:
                yield f"postgres:///{name}?{urlencode(place)}", session
        finally:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


class Project:
    def __init__(self, url: str, session: Session, history: Path) -> None:
        self.url, self._session, self._history = url, session, history
        self._environment = {
            **os.environ,
            **second.NOT,
            "DATABASE_URL": url,
            "CENSUS_HISTORY": str(history),
        }
        self._demos: list[Demo] = []

    def demo(self, *flags: str) -> "Demo":
        self._demos.append(Demo(self._environment, *flags))
        return self._demos[-1]

    def query(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        return self._session.execute(sql.SQL(text), params).fetchall()

    def change(self, *texts: str) -> None:
        """Run these SQL statements in one transaction."""
        with self._session.transaction():
            for text in texts:
                self._session.execute(sql.SQL(text))

    def number(self, text: str, *params: Any) -> int:
        """Return the number that a query gives, or 0 while its tables do not exist."""
        try:
            return int(self.query(text, *params)[0][0])
        except psycopg.errors.UndefinedTable:
            return 0

    def starts(self) -> Counter[int]:
        """Return how often the handler was started for each job, by the id of the job."""
        return Counter(map(int, self._history.read_text().split()))

    def working(self) -> tuple[int, str] | None:
        """Return process group and node id of a worker with at least 20 jobs in flight, or None."""
        with suppress(psycopg.errors.UndefinedTable):
            for node, name in self.query(
                "SELECT node.id::text, node.name FROM pulljobs_job AS job"
                " JOIN pulljobs_lease AS lease ON lease.lease_token = job.lease_token"
                " JOIN pulljobs_node AS node ON node.id = lease.node_id"
                " GROUP BY node.id HAVING count(*) >= 20"
            ):
                with suppress(ProcessLookupError):
                    return os.getpgid(int(name.rpartition(":")[2])), node
        return None

    def wait_for_work(self) -> tuple[int, str]:
        wait_until(lambda: self.working() is not None)
        return self.working() or self.wait_for_work()

    def held_by(self, node: str) -> int:
        return self.number(
            "SELECT count(*) FROM pulljobs_job WHERE lease_token IN"
            " (SELECT lease_token FROM pulljobs_lease WHERE node_id = %s)",
            node,
        )

    def worker_groups(self) -> set[int]:
        """Return the process groups of the live workers of this database."""
        groups = set()
        for (name,) in self.query("SELECT name FROM pulljobs_node"):
            with suppress(ProcessLookupError):
                groups.add(os.getpgid(int(name.rpartition(":")[2])))
        return groups

    def end(self) -> None:
        """Kill commands and workers of the test, commands first: they would start workers again."""
        for demo in self._demos:
            demo.process.kill()
            demo.process.wait()
        with suppress(psycopg.errors.UndefinedTable):
            for group in self.worker_groups():
                os.killpg(group, signal.SIGKILL)
        for demo in self._demos:
            demo.process.communicate()


class Demo:
    """Process of `manage.py demo`."""

    def __init__(self, environment: dict[str, str], *flags: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "demo", *flags],
            cwd=BASE_DIR,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.out = self.err = ""

    def end(self) -> int:
        """Wait for the end of the process. Return its exit code."""
        out, err = self.process.communicate(timeout=PATIENCE_SECONDS)
        self.out, self.err = self.out + out, self.err + err
        return self.process.returncode

    def says(self, pattern: str) -> re.Match[str]:
        """Read stderr up to the first line that matches the pattern. Return the match."""
        assert self.process.stderr
        for line in self.process.stderr:
            self.err += line
            if match := re.search(pattern, line):
                return match
        raise AssertionError(f"{pattern} is not in its output:\n{self.err}")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)
