"""Spark drivers in processes of their own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from example_project.state import BASE_DIR
from pulljobs.lake.spark.session import dsn
from tests.sessions import query, wait_until

PATIENCE_SECONDS = 400
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "pulljobs.lake.spark.daemon",
}


@contextmanager
def driver(do: str, **orders: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run the function `do` of `tests.lake.driver` in a Spark driver. Kill it after the block."""
    given = {"do": do, "master": "local[2,4]", "conf": CONF, **orders}
    given["options"] = {"dsn": dsn(), **given["options"]}
    command = [sys.executable, "-m", "tests.lake.driver", json.dumps(given)]
    process = subprocess.Popen(command, cwd=BASE_DIR, start_new_session=True)
    try:
        yield process
    finally:
        kill(process)
        wait_until(gone, PATIENCE_SECONDS)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill all processes in the process group of a Spark driver, and wait for its end."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE_SECONDS)


def gone() -> bool:
    """Return True if no Spark task or Spark driver runs a statement in the database."""
    [(count,)] = query(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pulljobs on Spark'"
        " AND datname = current_database() AND state <> 'idle'"
    )
    return bool(count == 0)
