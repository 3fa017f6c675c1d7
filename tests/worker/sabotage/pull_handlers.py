"""Handlers of `tests.worker.app`, and a recorder that ends or hangs the fetcher of one process."""

import os
import sys
import time
from pathlib import Path

from pulljobs.engine.telemetry import JobsClaimed, record_with
from tests.worker.app import pull_handlers  # noqa: F401  registers them

HOW = "SABOTAGE"
"""Environment variable with `die:FILE` or `hang:FILE`. The first process creates the file."""


def sabotage(event: object) -> None:
    how, _colon, file = os.environ[HOW].partition(":")
    if not isinstance(event, JobsClaimed) or Path(file).exists():
        return
    Path(file).touch()
    if how == "die":
        sys.exit()
    time.sleep(1000)


record_with(sabotage)
