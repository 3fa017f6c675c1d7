"""Handler of the workers. The payload decides how long it runs and how it ends.

well       returns
fail       raises, the first time
interrupt  raises KeyboardInterrupt, the first time
discard    raises Discard
hold       keeps the interpreter to itself for longer than its lease, the first time
"""

import ctypes
import time
from typing import Final

from benchmarks.faults.history import ENDED, STARTED, Entry
from benchmarks.faults.roles.environment import LEASE_DURATION, history_writer
from pulljobs.errors import Discard
from pulljobs.handlers import ClaimedJob, handler

HELD_LEASES: Final = 1.5
"""Lease durations for which a handler keeps the interpreter to itself."""


@handler(channel="faults", consumer="worked")
def worked(job: ClaimedJob) -> None:
    """Sleep, and end as the payload says."""
    script = job.json()
    is_first = not job.retry_count
    _note(STARTED, job)
    time.sleep(script["seconds"])
    if script["end"] == "hold" and is_first:
        ctypes.PyDLL(None).usleep(round(HELD_LEASES * LEASE_DURATION * 1_000_000))
    _note(ENDED, job)
    if script["end"] == "fail" and is_first:
        raise ValueError("failure asked for by the payload")
    if script["end"] == "interrupt" and is_first:
        raise KeyboardInterrupt
    if script["end"] == "discard":
        raise Discard("discard asked for by the payload")


def _note(event: str, job: ClaimedJob) -> None:
    history_writer().write(event, [Entry(job.id, job.held.lease_token)])
