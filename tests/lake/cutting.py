"""Kill exports at the step that a line of stdin names: `python -m tests.lake.cutting`.

Each runs in a fork of this process, so that Django and Arrow are loaded once.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn

import django
from pyarrow import fs

django.setup()

from example_project.state import BASE_DIR  # noqa: E402  after the setup
from pulljobs.lake import ledger  # noqa: E402
from pulljobs.lake.spark import exporting, session, tables  # noqa: E402
from pyspark_pulljobs import writing  # noqa: E402
from pyspark_pulljobs.filesystems import open_location  # noqa: E402

Place = tuple[Any, str]
STEPS: Final[dict[str, tuple[str, Place]]] = {
    "before the run row": ("before", (ledger, "begin_run")),
    "after the run row": ("after", (ledger, "begin_run")),
    "in the write": ("before", (writing._Days, "close")),
    "before the commit": ("before", (tables.Table, "commit")),
    "after the commit": ("after", (tables.Table, "commit")),
    "before the ledger": ("before", (ledger, "end_run")),
    "after the ledger": ("after", (ledger, "end_run")),
}
"""For each step, the call of a function before or after which the process kills itself."""
CONF: Final = (
    ("spark.executorEnv.PYTHONPATH", str(BASE_DIR)),  # where this is not installed
    ("spark.executor.memory", "512m"),
    ("spark.driver.memory", "512m"),
    ("spark.driver.host", "127.0.0.1"),
    ("spark.driver.bindAddress", "127.0.0.1"),
)


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def prepare(step: str) -> None:
    when, (owner, name) = STEPS[step]
    original: Callable[..., Any] = getattr(owner, name)

    def dying(*args: Any, **kwargs: Any) -> Any:
        if when == "after":
            original(*args, **kwargs)
        die()

    setattr(owner, name, dying)


def die_once_there_are_files(location: str) -> None:
    """Wait until a process has written a Parquet file at the location, and then kill this one."""
    lake, entries = open_location(location), fs.FileSelector("", True, recursive=True)
    while not any(entry.path.endswith(".parquet") for entry in lake.get_file_info(entries)):
        time.sleep(0.002)
    die()


def export(step: str, master: str) -> None:
    if step == "in the write" and master:
        watch = partial(die_once_there_are_files, tables.location())
        threading.Thread(target=watch, daemon=True).start()
    elif step:
        prepare(step)
    opened = partial(session.open_session, "cut", master=master or None, conf=CONF)
    exporting.export(exporting.ExportOptions(payload_cap=100), opened, always_spark=bool(master))


def main(master: str) -> None:
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            try:
                export(line.strip(), master)
                os._exit(0)
            except BaseException as error:
                print(f"failed: {error!r}", file=sys.stderr)
            os._exit(1)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        print("ended" if code <= 0 else "failed", -code, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:] or [""])
