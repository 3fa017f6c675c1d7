"""The first thing a child process imports: it must not touch Django before `setup`."""

import sys
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Final

from pulljobs.errors import ConfigurationError
from pulljobs.metrics import sharing

if TYPE_CHECKING:
    from pulljobs.worker.board import Board

MISCONFIGURED: Final = 78
"""Exit code of a child that no restart would help; the EX_CONFIG of sysexits."""
RETIRED: Final = 75
"""Exit code of a child that ended for another to take its place; the EX_TEMPFAIL of sysexits."""


def start(order: bytes, board: "Board", supervisor: Connection, counts_as: str | None) -> None:
    """Set Django up, find the handlers and work; `order` is a pickled `Order`."""
    import pickle

    if counts_as is not None:
        sharing.join(counts_as)  # Before a handler's module makes metrics of its own.

    import django

    django.setup()
    from pulljobs import handlers
    from pulljobs.worker import child

    try:
        handlers.autodiscover()
        ready = child.Child(pickle.loads(order), board)
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(MISCONFIGURED)
    child.work(ready, supervisor)
