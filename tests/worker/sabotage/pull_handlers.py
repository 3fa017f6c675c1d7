"""Handlers of `tests.worker.app`, in a process whose fetcher ends or hangs, or without threads."""

import os
import sys
import threading
import time
from multiprocessing import parent_process
from pathlib import Path

from pulljobs.engine.telemetry import JobsClaimed, record_with
from tests.worker.app import pull_handlers  # noqa: F401  registers them

HOW = "SABOTAGE"
"""Environment variable with `die:FILE`, `hang:FILE` or `threads:FILE`.

The first process that is sabotaged creates the file.
"""


def sabotage(event: object) -> None:
    how, _colon, file = os.environ[HOW].partition(":")
    if not isinstance(event, JobsClaimed) or Path(file).exists():
        return
    Path(file).touch()
    if how == "die":
        sys.exit()
    time.sleep(1000)


def refuse(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


if os.environ[HOW].startswith("threads:"):
    file = Path(os.environ[HOW].partition(":")[2])
    if parent_process() is not None and not file.exists():
        file.touch()
        threading.Thread.start = refuse  # type: ignore[method-assign]
else:
    record_with(sabotage)
