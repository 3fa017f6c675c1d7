"""The first thing a child process imports: it must not touch Django before `setup`."""

import gc
import sys
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Final

from pulljobs.errors import ConfigurationError
from pulljobs.metrics import sharing

if TYPE_CHECKING:
    from pulljobs.worker.shared_state import Board

MISCONFIGURED: Final = 78
"""Exit code of a child that no restart would help; the EX_CONFIG of sysexits."""
RETIRED: Final = 75
"""Exit code of a child that ended for another to take its place; the EX_TEMPFAIL of sysexits."""
TURN_SECONDS: Final = 0.001
"""How long the loops wait for handlers that compute; Python's own 5 ms are as long as a claim."""
COLLECT_AFTER: Final = 50_000
"""Objects that were made since and are still there; those of a few claims are fewer."""


def start(order: bytes, board: "Board", supervisor: Connection, counts_as: str | None) -> None:
    """Set Django up, find the handlers and work; `order` is a pickled `Order`."""
    import pickle

    if counts_as is not None:
        sharing.join(counts_as)  # Before a handler's module makes metrics of its own.

    import django

    django.setup()
    from pulljobs import handlers
    from pulljobs.storage import schema
    from pulljobs.worker import child, fork_guard

    try:
        with schema.required():
            handlers.autodiscover()
            ready = child.Child(pickle.loads(order), board)
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        board.leave()
        sys.exit(MISCONFIGURED)
    fork_guard.expect()
    sys.setswitchinterval(TURN_SECONDS)
    _collect_less()
    child.work(ready, board, supervisor)


def _collect_less() -> None:
    """What is imported stays anyway, and jobs in hand are thousands of objects without cycles.

    To look at them over and over took a third of the processor time of small jobs.
    """
    gc.collect()
    gc.freeze()
    _, second, third = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER, second, third)
