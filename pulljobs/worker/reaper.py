"""Reaper: expires overdue leases, and does the maintenance that is due."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final
from uuid import UUID

from pulljobs import auditing, loops, operating, pulling, scheduling
from pulljobs.conf import Settings
from pulljobs.loops import JITTER
from pulljobs.operating import Upkeep
from pulljobs.storage import nodes

LOCKED_AGAIN: Final = 1.0
"""Seconds after which a heartbeat is repeated whose row another transaction has locked."""


class Reaper:
    """Loop of every worker process that writes heartbeats, reaps and maintains, without a leader.

    Workers skip leases that another worker is reaping. However much there is to do, a pass is
    short: long passes would count as hung, and overdue leases must not wait for maintenance.
    """

    def __init__(
        self,
        limits: Settings,
        node_id: UUID,
        on_reaped: Callable[[], None],
        report: Callable[[], dict[str, Any]],
        on_beat: Callable[[], None],
    ) -> None:
        """`on_reaped` is called after leases expired, `on_beat` after each written heartbeat.

        `report` returns the report that a heartbeat writes.
        """
        self._limits, self._node_id, self._on_reaped = limits, node_id, on_reaped
        self._report, self._on_beat = report, on_beat
        self._beat_at = self._maintained_at = self._passed_at = float("-inf")
        self._upkeep: Iterator[Upkeep] | None = None

    def tick(self) -> float:
        """Write a heartbeat, then reap and maintain, as far as due. Return the seconds to sleep."""
        self._beat()
        interval = self._limits.REAP_INTERVAL.total_seconds()
        if time.monotonic() >= self._passed_at + (1 - JITTER) * interval:
            if self._pass():
                return 0.0
            self._passed_at = time.monotonic()
        beat = self._limits.HEARTBEAT_INTERVAL.total_seconds()
        return min(self._passed_at + interval, self._beat_at + beat) - time.monotonic()

    def _pass(self) -> bool:
        """Reap and maintain, each kind of work for about a second. Return True if more is left."""
        self._begin_upkeep()
        parts = (
            self._reap,
            pulling.sweep_keys,
            scheduling.dispatch_more,
            operating.count_settlements,
            self._maintain,
            partial(auditing.proceed, 0.0),
        )
        return loops.repeat_each(parts)

    def _reap(self) -> bool:
        if pulling.reap() is None:
            return False
        self._on_reaped()
        return True

    def _beat(self) -> None:
        interval = self._limits.HEARTBEAT_INTERVAL.total_seconds()
        if time.monotonic() - self._beat_at < interval:
            return
        if nodes.beat(self._limits.DATABASE, self._node_id, self._report()):
            self._on_beat()
            self._beat_at = time.monotonic()
        else:  # Another transaction has the row locked.
            self._beat_at = time.monotonic() - interval + LOCKED_AGAIN

    def _begin_upkeep(self) -> None:
        due = self._maintained_at + self._limits.MAINTENANCE_INTERVAL.total_seconds()
        if self._upkeep is None and time.monotonic() >= due:
            # Set first: an upkeep that fails, as for want of rights, is repeated when next due.
            self._maintained_at = time.monotonic()
            self._upkeep = operating.maintaining()

    def _maintain(self) -> bool:
        if self._upkeep is None or next(self._upkeep, None) is None:
            self._upkeep = None
        return self._upkeep is not None
