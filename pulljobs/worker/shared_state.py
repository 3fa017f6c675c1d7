"""Memory that a child shares with its supervisor: what it runs, and that it lives."""

import ctypes
import time
from collections.abc import MutableSequence
from dataclasses import dataclass
from multiprocessing.context import SpawnContext
from typing import Final

IDLE: Final = 0
"""In a slot: no job runs there."""
SICK: Final = -1.0
"""For a pulse: a loop is dead or hung."""
TO_BEGIN: Final = 60.0

_PULSE, _REACHED, _LEFT = range(3)

Slots = MutableSequence[int] | ctypes.Array[ctypes.c_int64]
Times = MutableSequence[float] | ctypes.Array[ctypes.c_double]


@dataclass(frozen=True, slots=True)
class Board:
    """`slots` hold the ids of jobs; times are of the monotonic clock that processes share."""

    slots: Slots
    times: Times

    @classmethod
    def shared(cls, context: SpawnContext, slots: int) -> "Board":
        return cls(context.RawArray(ctypes.c_int64, slots), context.RawArray(ctypes.c_double, 3))

    def running(self) -> tuple[int, ...]:
        return tuple(id for id in self.slots if id != IDLE)

    def beat(self, *, is_well: bool) -> None:
        self.times[_PULSE] = time.monotonic() if is_well else SICK

    def reach(self) -> None:
        """The database answered."""
        self.times[_REACHED] = time.monotonic()

    def leave(self) -> None:
        """Said last by a process that ends as it means to."""
        self.times[_LEFT] = time.monotonic()

    @property
    def has_left(self) -> bool:
        return self.times[_LEFT] != 0

    @property
    def has_begun(self) -> bool:
        return self.times[_PULSE] != 0

    def is_sick(self, began_at: float, patience: float) -> bool:
        """To begin takes a while: the imports of a project are in it."""
        pulse, now = self.times[_PULSE], time.monotonic()
        if not pulse:
            return now - began_at > max(patience, TO_BEGIN)
        return pulse == SICK or now - pulse > patience

    def is_ready(self, patience: float) -> bool:
        """Whether it reached the database of late."""
        return time.monotonic() - self.times[_REACHED] <= patience
