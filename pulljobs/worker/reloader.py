"""Reloader for development: restarts the worker when its code changes.

A watching process notices changes with Django's `autoreload` and runs the worker as a subprocess.
After a change it stops that worker as SIGTERM does: running jobs get their time, waiting jobs are
released without counting a retry. After a worker that failed, the next change starts another.

Django's own `run_with_reloader` would run the command in a thread that gets no signals, and end the
process at once, which leaves running jobs to their leases.
"""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from sysconfig import get_paths
from types import FrameType
from typing import Any, Final

from django.apps import apps
from django.utils import autoreload

logger = logging.getLogger("pulljobs.worker")

LOOK: Final = 0.1
LIBRARIES: Final = tuple(get_paths()[name] for name in ("stdlib", "purelib", "platlib"))


def is_worker() -> bool:
    """Return True in the worker process, False in the process that watches for changes."""
    return os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) == "true"


def stop_with_watcher() -> None:
    """Start a thread that stops this worker when the watching process ends or is killed."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="watcher", daemon=True).start()


def watch() -> int:
    """Run a worker, and again after each change of a file. Return the last one's exit code.

    A signal ends this, and so does a worker that has nothing left to do, as with BURST. The code is
    0 if a signal killed the worker.
    """
    return _Watcher().run()


class _Watcher:
    def __init__(self) -> None:
        self._changed, self._is_stopping = threading.Event(), False
        self._worker: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        threading.Thread(target=self._watch_files, name="autoreload", daemon=True).start()
        with self._signals_handled():
            while True:
                self._changed.clear()
                code = self._run_worker()
                if not self._is_stopping and self._changed.is_set():
                    continue
                if not self._is_stopping and code:
                    logger.error(
                        "The worker ended with code %d. It starts again after a change.", code
                    )
                    self._wait_for_change()
                if self._is_stopping or not code:
                    return max(code, 0)

    def _run_worker(self) -> int:
        """Run a worker until it ends, or is stopped after a change. Return its exit code."""
        environment = {**os.environ, autoreload.DJANGO_AUTORELOAD_ENV: "true"}
        worker = self._worker = subprocess.Popen(
            autoreload.get_child_arguments(),
            env=environment,
            stdin=subprocess.PIPE,  # Closed when this process ends.
            process_group=0,  # A terminal sends Ctrl-C to this process only.
        )
        is_stopped = False
        with worker:
            while worker.poll() is None:
                if self._changed.is_set() and not is_stopped:
                    is_stopped = True
                    worker.terminate()
                time.sleep(LOOK)
        return worker.returncode

    def _wait_for_change(self) -> None:
        while not (self._is_stopping or self._changed.wait(LOOK)):
            pass

    def _watch_files(self) -> None:
        autoreload.autoreload_started.connect(_watch_apps)
        autoreload.file_changed.connect(self._on_change)
        autoreload.get_reloader().run(threading.main_thread())

    def _on_change(self, file_path: Path, **named: Any) -> bool:
        """Note that a file changed. Return True, which keeps Django from ending this process."""
        if not self._changed.is_set():
            logger.warning("%s changed: the worker restarts.", file_path)
        self._changed.set()
        return True

    @contextmanager
    def _signals_handled(self) -> Iterator[None]:
        """Stop the worker at a signal in the block. At a second, its supervisor kills the children.

        SIGUSR1, which asks the worker for a report, is passed on.
        """
        numbers = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup sets it
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, self._stop) for number in numbers}
        before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, self._pass_on)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._is_stopping = True
        if self._worker is not None:
            with suppress(ProcessLookupError):
                self._worker.terminate()

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if self._worker is not None:
            self._worker.send_signal(number)


def _watch_apps(sender: autoreload.BaseReloader, **named: Any) -> None:
    """Watch all modules of the project's apps: workers import some only when they need them."""
    for app in apps.get_app_configs():
        if not app.path.startswith(LIBRARIES):
            sender.watch_dir(app.path, "**/*.py")
