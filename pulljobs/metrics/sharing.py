"""Several processes that count together, in files of one directory.

It is the multiprocess mode of prometheus_client, with one thing changed for the children of a
worker: their files bear the number of their post, not a process id. Whoever takes the post of one
that ended counts on from where that one was, so no number ever goes back, and there are never more
files than posts, however often a child is replaced. Without Django, for a child comes here first.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Final

VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"


@contextmanager
def opened(name: str) -> Iterator[None]:
    """A directory for this process, under that name, and for those that it starts meanwhile.

    One that the environment names is left to others: what was counted there before is not ours.
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
    """Count there from now on, under a name that no other process has at the same time.

    To be called before the metrics are made, which keep the files that they began with.
    """
    from prometheus_client import values

    values.ValueClass = values.MultiProcessValue(_known_as(name))  # type: ignore[no-untyped-call]


def leave(name: str) -> None:
    """Said of a process that has ended: gauges of the living forget it, all else stays."""
    from prometheus_client import multiprocess

    multiprocess.mark_process_dead(name)  # type: ignore[no-untyped-call]


def _known_as(name: str) -> Callable[[], str]:
    """What a handler forks must not write into the files of its parent."""
    ours = os.getpid()
    return lambda: name if os.getpid() == ours else str(os.getpid())
