"""Reaper in server processes of the HTTP API, so that leases expire where no worker runs.

It is a thread that begins with the first request for jobs to the process.
"""

import atexit
import logging
import os
import threading
from collections.abc import Callable
from typing import Final

from django.db import connections

from pulljobs import loops, operating, pulling, scheduling
from pulljobs.conf import settings
from pulljobs.diagnosis import serving
from pulljobs.engine.deadlines import WorkDeadline
from pulljobs.loops import Runner

logger = logging.getLogger("pulljobs.api")

NAME: Final = "pulljobs-reaper"
"""Name of the thread of the reaper."""
CLOSE_SECONDS: Final = 5.0
LONGEST_PASS_SECONDS: Final = 30.0
"""Time limit of a pass, for a database that no longer answers. A pass takes a few seconds."""
FOREVER: Final = float("inf")


class ServingReaper:
    """Loop of a server process that reaps and, while no worker runs, also publishes due messages.

    Processes may reap at the same time: each skips the leases that another process has locked.
    """

    def __init__(self) -> None:
        self._has_waited = False

    def tick(self) -> float:
        """Do a pass, and return the seconds until the next.

        The first call does nothing, because the lease that started the reaper has just begun. After
        a pass the connection is closed, unless Django's settings keep connections (CONN_MAX_AGE).
        """
        interval = settings().REAP_INTERVAL.total_seconds()
        if not self._has_waited:
            self._has_waited = True
            return interval
        wrapper = connections[settings().DATABASE]
        try:
            with WorkDeadline(wrapper, LONGEST_PASS_SECONDS):
                return 0.0 if _pass() else interval
        finally:
            wrapper.close_if_unusable_or_obsolete()


def ensure_reaping() -> None:
    """Start the reaper of this process unless it runs, or PULLJOBS['REAP_WHILE_SERVING'] is False.

    The API calls this for pulls, acks, renewals, lists of queued jobs, and job POSTs that take a
    job.
    """
    global _runner
    if not settings().REAP_WHILE_SERVING:
        _warn_once()
    elif _runner is None or _runner.is_unhealthy(FOREVER):
        with _starting:
            if _runner is None or _runner.is_unhealthy(FOREVER):
                _runner = _start()


def close() -> None:
    """Stop the reaper, and wait up to CLOSE_SECONDS for it. `ensure_reaping` starts another."""
    global _runner
    with _starting:
        runner, _runner = _runner, None
    if runner is not None:
        runner.stop()
        runner.join(CLOSE_SECONDS)


def _start() -> Runner:
    runner = Runner(NAME, ServingReaper())
    runner.start()
    return runner


def _pass() -> bool:
    """Reap, and while no worker runs, sweep keys, publish due messages and count settlements.

    Each of these has a bounded time. Return True if work is left.
    """
    parts: list[Callable[[], bool]] = [_reap]
    if not serving.has_worker():
        parts += [pulling.sweep_keys, scheduling.dispatch_more, operating.count_settlements]
    return loops.repeat_each(parts)


def _reap() -> bool:
    return pulling.reap() is not None


def _warn_once() -> None:
    global _has_warned
    if not _has_warned:
        _has_warned = True
        logger.warning(
            "This process hands out leases, and PULLJOBS['REAP_WHILE_SERVING'] is False: jobs of "
            "clients that crash come back only while a worker runs."
        )


def _forget() -> None:
    """Forget the reaper in a forked process, which does not have its thread."""
    global _runner, _starting
    _runner, _starting = None, threading.Lock()


_runner: Runner | None = None
_starting = threading.Lock()
_has_warned = False
os.register_at_fork(after_in_child=_forget)
atexit.register(close)
