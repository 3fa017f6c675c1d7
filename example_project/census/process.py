"""Processes of the demo: its worker, restarted after a kill, and the service of its lake."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from django.core.management.base import CommandError

from example_project.census.pull_handlers import CHANNEL, REPEATS, REPORTS
from example_project.state import BASE_DIR
from pulljobs.errors import ConfigurationError

MANAGE: Final = BASE_DIR / "manage.py"
STOP_SECONDS: Final = 20.0
"""Seconds to wait for a stop: more than the worker's graceful timeout and its last flush."""


class Service:
    """Subcommand of manage.py in a process that lives as long as the `with` block.

    It is in a session of its own, so that the terminal's Ctrl-C reaches only the demo, which then
    stops this process.
    """

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self._name, self._command = name, command
        self.restarts = 0

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def keep(self) -> None:
        """Restart the process if it has ended. The demo calls this at least once a second.

        Raise CommandError if it ended with an error, and not by a signal.
        """
        code = self._process.poll()
        if code is None:
            return
        if code > 0:
            raise CommandError(f"{self._name} can't run (exit code {code}): see its output above.")
        self.restarts += 1
        self._start()

    def stop(self) -> None:
        """Send SIGTERM to the process, and kill it if it lives on after `STOP_SECONDS`."""
        self._process.terminate()
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            # In this directory, so that relative paths in the environment mean the same to both.
            [sys.executable, MANAGE, *self._command],
            # The summary lists failed runs, so their warnings are not shown.
            env={**os.environ, "LOG_LEVEL": "ERROR"},
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            start_new_session=True,
        )


class Worker(Service):
    """Process that runs the handlers of the census."""

    def __init__(self, concurrency: int) -> None:
        flags = [f"--concurrency={concurrency}", "--reap-interval=1"]
        channels = (CHANNEL, REPEATS, REPORTS)
        super().__init__("The worker", ["runpullworker", "--only", *channels, *flags])


def watch_lake() -> Service:
    """Return the process of `lake watch`, which exports the history and computes rollups."""
    return Service("The service of the lake", ["pulljobs", "lake", "watch", "--every", "10"])


def is_spark_installed() -> bool:
    """Return True if a supported Spark and the libraries of the lake are installed."""
    from pulljobs.lake.spark import session

    try:
        session.require()
        session.require_lake()
    except ConfigurationError:
        return False
    return True
