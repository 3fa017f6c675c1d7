"""Entry point of a child process. Modules that need Django are imported after `django.setup`."""

import gc
import logging
import sys
from multiprocessing.connection import Connection
from typing import Final

from pulljobs.errors import ConfigurationError
from pulljobs.metrics import sharing
from pulljobs.worker.shared_state import MISCONFIGURED, UNREACHED, SharedState

logger = logging.getLogger("pulljobs.worker")

SWITCH_SECONDS: Final = 0.001
"""Seconds after which a thread that computes has to let others run, 5 ms by default in Python.

A claim takes that long, so loops would wait for handlers.
"""
COLLECT_AFTER: Final = 50_000
"""New objects that survive until a garbage collection begins. A few claims allocate fewer."""


def start(
    order: bytes, shared_state: SharedState, supervisor: Connection, counts_as: str | None
) -> None:
    """Set Django up, import the handlers and work until the end of the process.

    Exit with MISCONFIGURED or UNREACHED if the settings or the database do not allow that. `order`
    is a pickled `ChildOrder`. `supervisor` is a pipe that closes when the supervisor ends.
    `counts_as` names the process in the shared metrics, or is None if it records no metrics.
    """
    import pickle

    gc.disable()  # Imports leave no garbage, and a search for it takes a seventh of the start.
    if counts_as is not None:
        sharing.join(counts_as)  # Before the module of a handler defines metrics of its own.

    import django
    from django.db import InterfaceError, InternalError, OperationalError

    django.setup()
    from pulljobs import handlers
    from pulljobs.storage import schema
    from pulljobs.worker import child, fork_guard

    try:
        with schema.required():
            handlers.autodiscover()
            ready = child.Child(pickle.loads(order), shared_state)
            ready.register()
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        shared_state.leave()
        sys.exit(MISCONFIGURED)
    except (InterfaceError, InternalError, OperationalError) as error:  # Internal: read-only.
        problem = " ".join(str(error).split())
        logger.warning("The database fails, and this process will be replaced: %s", problem)
        shared_state.leave()
        sys.exit(UNREACHED)
    fork_guard.install()
    sys.setswitchinterval(SWITCH_SECONDS)
    _collect_less()
    child.work(ready, shared_state, supervisor)


def _collect_less() -> None:
    """Collect garbage from now on, but less often, and never scan the imported modules.

    Imports stay for good, and claimed jobs are thousands of objects without cycles. Scanning them
    took a third of the processor time of small jobs.
    """
    gc.freeze()
    _, second, third = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER, second, third)
    gc.enable()
