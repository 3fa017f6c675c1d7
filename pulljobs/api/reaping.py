"""Reaper of processes that hand out leases over HTTP, so that leases end where no worker runs."""

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
"""Name of the thread."""
CLOSE_SECONDS: Final = 5.0
LONGEST_PASS_SECONDS: Final = 30.0
"""Time after which the server counts as silent. Each part of a pass takes a second or two."""
FOREVER: Final = float("inf")


class ServingReaper:
    """Loop of a serving process. Processes skip each other's leases, so there is no leader."""

    def __init__(self) -> None:
        self._has_waited = False

    def tick(self) -> float:
        """Do one pass. Between passes the connection is kept only if Django keeps connections.

        The first call only waits, because the lease that started the reaper has just begun.
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
    """Start the reaper of this process unless it runs or is turned off. Each lease calls this."""
    global _runner
    if not settings().REAP_WHILE_SERVING:
        _warn_once()
    elif _runner is None or _runner.is_unhealthy(FOREVER):
        with _starting:
            if _runner is None or _runner.is_unhealthy(FOREVER):
                _runner = _start()


def close() -> None:
    """End the reaper of this process. The next lease starts another."""
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
    """Do a while of each part. Return True if there is more to do."""
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
    """Forget the reaper in a forked process, which lacks its thread."""
    global _runner, _starting
    _runner, _starting = None, threading.Lock()


_runner: Runner | None = None
_starting = threading.Lock()
_has_warned = False
os.register_at_fork(after_in_child=_forget)
atexit.register(close)
