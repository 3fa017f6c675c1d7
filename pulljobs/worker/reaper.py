"""The reaper: gives back what leases hold that are over, and does what else is due."""

import time
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from pulljobs import auditing, operating, pulling, scheduling
from pulljobs.conf import Settings
from pulljobs.storage import nodes

ACTING_SECONDS: Final = 1.0
"""Of one pass, for what operators asked to be done to many jobs."""


class Reaper:
    """Loop: every worker runs one; they skip each other's leases, so there is no leader."""

    def __init__(
        self,
        limits: Settings,
        node_id: UUID,
        on_reaped: Callable[[], None],
        report: Callable[[], dict[str, Any]],
        on_beat: Callable[[], None],
    ) -> None:
        self._limits, self._node_id, self._on_reaped = limits, node_id, on_reaped
        self._report, self._on_beat = report, on_beat
        self._beat_at = self._maintained_at = float("-inf")

    def tick(self) -> float:
        self._beat()
        while pulling.reap() is not None:
            self._on_reaped()
        pulling.sweep_keys()
        scheduling.dispatch()
        self._maintain()
        if auditing.proceed(ACTING_SECONDS):
            return 0.0
        return self._limits.REAP_INTERVAL.total_seconds()

    def _beat(self) -> None:
        if time.monotonic() - self._beat_at >= self._limits.HEARTBEAT_INTERVAL.total_seconds():
            nodes.beat(self._limits.DATABASE, self._node_id, self._report())
            self._on_beat()
            self._beat_at = time.monotonic()

    def _maintain(self) -> None:
        due = self._maintained_at + self._limits.MAINTENANCE_INTERVAL.total_seconds()
        if time.monotonic() >= due:
            # Before it: what fails now (who is not the owner, say) is tried again when due again.
            self._maintained_at = time.monotonic()
            operating.maintain()
