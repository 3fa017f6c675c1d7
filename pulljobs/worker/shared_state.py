"""State that a supervisor and its child process share: order, exit codes, running jobs, health."""

import ctypes
import time
from collections.abc import MutableSequence
from dataclasses import dataclass
from multiprocessing.context import SpawnContext
from typing import TYPE_CHECKING, Final
from uuid import UUID

if TYPE_CHECKING:
    from pulljobs.conf import Settings

MISCONFIGURED: Final = 78
"""Exit code of a child that a restart would not help. It is the EX_CONFIG of sysexits."""
RETIRED: Final = 75
"""Exit code of a child that a new child has to replace. It is the EX_TEMPFAIL of sysexits."""
UNREACHED: Final = 69
"""Exit code of a child that could not start without the database: EX_UNAVAILABLE of sysexits."""
LAST_FLUSH: Final = 0.6
"""Seconds for the last flush, within the second that a stop may take beyond its timeout."""
IDLE: Final = 0
"""Content of a slot in which no job runs."""
UNHEALTHY: Final = -1.0
"""Heartbeat of a child in which a loop is dead or hangs."""
START_PATIENCE: Final = 60.0
"""Seconds that a child may take to start, which includes the imports of the project."""

_HEARTBEAT, _REACHED, _LEFT, _PASSED = range(4)

Slots = MutableSequence[int] | ctypes.Array[ctypes.c_int64]
Times = MutableSequence[float] | ctypes.Array[ctypes.c_double]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildOrder:
    """Node id and settings that a supervisor gives to a child process at its start."""

    node_id: UUID
    limits: "Settings"


@dataclass(frozen=True, slots=True)
class SharedState:
    """Memory that a child writes and its supervisor reads, even after the child crashed.

    Each of the `slots` has the id of the job that runs in it. `times` are of the monotonic clock.
    """

    slots: Slots
    times: Times

    @classmethod
    def allocate(cls, context: SpawnContext, slots: int) -> "SharedState":
        """Allocate the memory that the processes of this context share."""
        return cls(context.RawArray(ctypes.c_int64, slots), context.RawArray(ctypes.c_double, 4))

    def running(self) -> tuple[int, ...]:
        """Return the ids of the jobs that run in the child, without those of push deliveries."""
        return tuple(job_id for job_id in self.slots if job_id != IDLE)

    def beat(self, *, is_healthy: bool) -> None:
        """Record a heartbeat of the child. It is healthy if no loop is dead or hangs."""
        self.times[_PASSED] = time.monotonic()
        self.times[_HEARTBEAT] = time.monotonic() if is_healthy else UNHEALTHY

    def note_reached(self) -> None:
        """Record that the database has just answered the child."""
        self.times[_REACHED] = time.monotonic()

    def leave(self) -> None:
        """Record that the child exits on purpose."""
        self.times[_LEFT] = time.monotonic()

    @property
    def has_left(self) -> bool:
        """True once the child has recorded that it exits on purpose: its end is no crash."""
        return self.times[_LEFT] != 0

    @property
    def has_begun(self) -> bool:
        """True once the loops of the child process have begun."""
        return self.times[_HEARTBEAT] != 0

    def is_unhealthy(self, began_at: float, patience: float) -> bool:
        """Return True if the heartbeat is older than `patience`, or reports a dead or hung loop.

        A child that began at `began_at` and has no heartbeat yet gets at least `START_PATIENCE`.
        """
        heartbeat, now = self.times[_HEARTBEAT], time.monotonic()
        if not heartbeat:
            return now - began_at > max(patience, START_PATIENCE)
        return heartbeat == UNHEALTHY or now - heartbeat > patience

    def is_silent(self, seconds: float) -> bool:
        """Return True if the child's last heartbeat, healthy or not, is over `seconds` old."""
        return self.times[_PASSED] != 0 and time.monotonic() - self.times[_PASSED] > seconds

    def is_ready(self, patience: float) -> bool:
        """Return True if the child reached the database within the last `patience` seconds."""
        reached = self.times[_REACHED]  # 0 before: soon after a boot, 0 is not long ago.
        return reached != 0 and time.monotonic() - reached <= patience
