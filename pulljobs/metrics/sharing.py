"""Counters that several processes share, in files of one directory.

This is the multiprocess mode of prometheus_client, with one change for the child processes of a
worker: the name of their files has the number of the child slot, not a process id. A child that
replaces another one continues its counts. So no counter goes back, and there are no files of
former children. Django is not needed, because a child process calls this before it sets up Django.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Final

VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"


@contextmanager
def opened(name: str) -> Iterator[None]:
    """Keep a directory for the counters of this process and its children while the block runs.

    `name` names the files of this process. If the environment names a directory already, that one
    is not used within the block, because it may have other counts.
    """
    before = os.environ.get(VARIABLE)
    with TemporaryDirectory(prefix="pulljobs-metrics-", ignore_cleanup_errors=True) as directory:
        os.environ[VARIABLE] = directory
        try:
            join(name)
            yield
        finally:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before


def join(name: str) -> None:
    """Count in the shared directory from now on, in files named after `name`.

    No other process may have the name at the same time. The call has to come before the metrics are
    created, because they keep the files that they began with.
    """
    from prometheus_client import values

    values.ValueClass = values.MultiProcessValue(_known_as(name))  # type: ignore[no-untyped-call]


def leave(name: str) -> None:
    """Note that the process of this name ended: its counters stay, its live gauges are removed."""
    from prometheus_client import multiprocess

    multiprocess.mark_process_dead(name)  # type: ignore[no-untyped-call]


def _known_as(name: str) -> Callable[[], str]:
    """Return a function that returns the name in this process, and the pid in its forks.

    So a process that a handler forks gets files of its own.
    """
    ours = os.getpid()
    return lambda: name if os.getpid() == ours else str(os.getpid())
