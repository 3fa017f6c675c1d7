"""The worker as a process of its own."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from types import TracebackType
from typing import Final

from django.core.management.base import CommandError

from example_project.census.pull_handlers import CHANNEL
from example_project.state import BASE_DIR

MANAGE: Final = BASE_DIR / "manage.py"
STOP_SECONDS: Final = 20.0
"""Above the worker's own graceful timeout and its last flush."""


class Worker:
    """Runs `runpullworker` while the context lasts, again when somebody killed it.

    In a session of its own, so that the terminal's Ctrl-C reaches us, and it only through us.
    """

    def __init__(self, concurrency: int) -> None:
        self._flags = [f"--concurrency={concurrency}", "--reap-interval=1"]
        self.restarts = 0

    def __enter__(self) -> "Worker":
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
        """Start it again if somebody ended it; CommandError if it failed by itself."""
        code = self._process.poll()
        if code is None:
            return
        if code > 0:
            raise CommandError(f"The worker can't run (exit code {code}): see what it says above.")
        self.restarts += 1
        self._start()

    def stop(self) -> None:
        """Ask it to finish what it is doing; whatever does not end in time is killed."""
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
            # In our directory: what is relative in the environment means the same to both.
            [sys.executable, MANAGE, "runpullworker", "--only", CHANNEL, *self._flags],
            # Each failed run is a warning, and the summary tells of them.
            env={**os.environ, "LOG_LEVEL": "ERROR"},
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            start_new_session=True,
        )
