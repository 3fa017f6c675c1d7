"""Endings of jobs, which workers and HTTP clients share. The payload names the ending.

well            returns
fail            raises, the first time
throttle        raises a Retry that throttles its consumer for `throttle` seconds, the first time
discard         raises Discard
interrupt       raises KeyboardInterrupt, the first time
exit            raises SystemExit, the first time
generator_exit  raises GeneratorExit, the first time
cancel          raises CancelledError, the first time
base            raises a BaseException of its own, the first time
hold            keeps the interpreter to itself for longer than its lease, the first time
"""

import asyncio
import ctypes
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from benchmarks.faults.roles.environment import LEASE_DURATION
from pulljobs.errors import Discard, Retry

HOLD: Final = "hold"
THROTTLE: Final = "throttle"
HELD_LEASES: Final = 1.5
"""Lease durations for which a handler keeps the interpreter to itself."""


class BareError(BaseException):
    """Error that no `except Exception` catches."""


RAISED: Final[Mapping[str, type[BaseException]]] = {
    "fail": ValueError,
    "interrupt": KeyboardInterrupt,
    "exit": SystemExit,
    "generator_exit": GeneratorExit,
    "cancel": asyncio.CancelledError,
    "base": BareError,
}
BASE_EXCEPTIONS: Final = tuple(name for name in RAISED if name != "fail")


def raise_ending(script: Mapping[str, Any], *, is_first: bool) -> None:
    """Raise the error that the payload names, if any. Most are raised in the first run only."""
    end = script["end"]
    if end == "discard":
        raise Discard("discard asked for by the payload")
    if end == THROTTLE and is_first:
        raise Retry(after=timedelta(seconds=script["throttle"]), backoff=False, throttle=True)
    if end in RAISED and is_first:
        raise RAISED[end]("error asked for by the payload")


def hold_interpreter() -> None:
    """Let no other thread of the process run until the lease is over."""
    ctypes.PyDLL(None).usleep(round(HELD_LEASES * LEASE_DURATION * 1_000_000))
