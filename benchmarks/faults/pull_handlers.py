"""Handlers of the workers. The payload decides how long they run and how they end (`endings`)."""

import asyncio
import time
from typing import Any

from benchmarks.faults.history import ENDED, FROZE, STARTED, Entry
from benchmarks.faults.roles.endings import HOLD, hold_interpreter, raise_ending
from benchmarks.faults.roles.environment import history_writer
from pulljobs.handlers import ClaimedJob, handler


@handler(channel="faults", consumer="worked")
def worked(job: ClaimedJob) -> str:
    """Sleep, and end as the payload says. The result is as long as the payload says."""
    script = job.json()
    _note(STARTED, job)
    time.sleep(script["seconds"])
    if script["end"] == HOLD and not job.retry_count:
        since = time.monotonic()
        hold_interpreter()
        history_writer().write(FROZE, [_entry(job)], since=since)
    return _end(job, script)


@handler(channel="faults-async", consumer="awaited")
async def awaited(job: ClaimedJob) -> str:
    """Sleep on the event loop, and end as the payload says."""
    script = job.json()
    _note(STARTED, job)
    await asyncio.sleep(script["seconds"])
    return _end(job, script)


def _end(job: ClaimedJob, script: dict[str, Any]) -> str:
    _note(ENDED, job)
    raise_ending(script, is_first=not job.retry_count)
    return "x" * int(script.get("result", 0))


def _note(event: str, job: ClaimedJob) -> None:
    history_writer().write(event, [_entry(job)])


def _entry(job: ClaimedJob) -> Entry:
    return Entry(job.id, job.held.lease_token)
