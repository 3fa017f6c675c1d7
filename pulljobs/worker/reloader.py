"""A worker that is started anew when its code changes, for development.

One process watches files, by the means of Django's autoreload, and starts the other, which is the
worker as it always is. After a change that one is stopped as by SIGTERM: what runs gets its time,
the rest is given back, nothing is charged. What can't start, with a mistake in its code, waits for
the next change.
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


def is_watched() -> bool:
    """Whether this process is the one that works."""
    return os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) == "true"


def end_with_watcher() -> None:
    """Stop when the process that watches is gone, however it died."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="watcher", daemon=True).start()


def watch() -> int:
    """Run a worker with the arguments of this process until it ends or is ended; its exit code."""
    return _Watcher().run()


class _Watcher:
    def __init__(self) -> None:
        self._changed, self._is_stopping = threading.Event(), False
        self._worker: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        threading.Thread(target=self._look, name="autoreload", daemon=True).start()
        with self._signals_taken():
            while True:
                self._changed.clear()
                code = self._work()
                if not self._is_stopping and self._changed.is_set():
                    continue
                if not self._is_stopping and code:
                    logger.error("The worker ended with %d; it starts again after a change.", code)
                    self._wait_for_change()
                if self._is_stopping or not code:
                    return max(code, 0)

    def _work(self) -> int:
        """Until it ends, of itself or for a change."""
        environment = {**os.environ, autoreload.DJANGO_AUTORELOAD_ENV: "true"}
        worker = self._worker = subprocess.Popen(
            autoreload.get_child_arguments(),
            env=environment,
            stdin=subprocess.PIPE,  # closed when this process ends
            process_group=0,  # for a terminal's Ctrl-C to reach it through us alone
        )
        is_asked = False
        with worker:
            while worker.poll() is None:
                if self._changed.is_set() and not is_asked:
                    is_asked = True
                    worker.terminate()
                time.sleep(LOOK)
        return worker.returncode

    def _wait_for_change(self) -> None:
        while not (self._is_stopping or self._changed.wait(LOOK)):
            pass

    def _look(self) -> None:
        autoreload.autoreload_started.connect(_watch_apps)
        autoreload.file_changed.connect(self._hear)
        autoreload.get_reloader().run(threading.main_thread())

    def _hear(self, file_path: Path, **named: Any) -> bool:
        """True: nothing else is to be done about it."""
        if not self._changed.is_set():
            logger.warning("%s changed: the worker starts anew.", file_path)
        self._changed.set()
        return True

    @contextmanager
    def _signals_taken(self) -> Iterator[None]:
        """The first one stops the worker, a second one kills it, as without a watcher."""
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        before = {number: signal.signal(number, self._stop) for number in numbers}
        try:
            yield
        finally:
            for number, what in before.items():
                signal.signal(number, what)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._is_stopping = True
        if self._worker is not None:
            with suppress(ProcessLookupError):
                self._worker.terminate()


def _watch_apps(sender: autoreload.BaseReloader, **named: Any) -> None:
    """What workers import only when they need it, too."""
    for app in apps.get_app_configs():
        if not app.path.startswith(LIBRARIES):
            sender.watch_dir(app.path, "**/*.py")
