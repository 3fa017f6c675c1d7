"""Handlers that do what their payload asks for, and note it in a file outside the database.

{"quiet": true}     ends at once and notes nothing
{"until": path}     runs until that file exists
{"seconds": n}      runs for n seconds
{"block": n}        blocks the event loop for n seconds
{"cleanup": n}      takes n seconds to end when it is cancelled
{"heed": true}      ends when the worker is stopping, or the job is lost
{"kill": true}      kills its process
{"exit": n}         ends its process with that code
{"fail": text}      raises
{"interrupt": true} raises KeyboardInterrupt
{"gil": n}          keeps the interpreter to itself for n seconds: no other thread runs
{"after": n}        asks for a retry in n seconds, the first time
{"backoff": false}  makes that retry neutral for the circuit
{"throttle": n}     throttles its consumer for n seconds, the first time: {"by": "retry"} by a retry
{"giving_up": text} raises in `on_giving_up`

{"copy": how}       forks, and the copy exits, raises or returns (channels `forked...` only)
"""

import asyncio
import ctypes
import multiprocessing
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection

from pulljobs.errors import Retry
from pulljobs.handlers import AckPolicy, ClaimedJob, handler
from tests.worker.history import note


def given_up(job: ClaimedJob) -> None:
    note("given-up", job.id)
    if "giving_up" in (script := job.json()):
        raise ValueError(script["giving_up"])


@handler(channel="script", consumer="plain", on_giving_up=given_up)
def plain(job: ClaimedJob) -> str:
    script = job.json() if job.payload else {}
    if "quiet" in script:
        return "quiet"
    note("started", job.id)
    _run(job, script)
    note("lost" if job.lost else "ended", job.id)
    return f"run {job.deliveries}"


@handler(channel="other", consumer="plain")
def other(job: ClaimedJob) -> None:
    note("other", job.id)


@handler(channel="awaited", consumer="plain")
async def awaited(job: ClaimedJob) -> None:
    script = job.json()
    note("started", job.id)
    try:
        while "until" in script and not Path(script["until"]).exists():
            await asyncio.sleep(0.01)
        time.sleep(script.get("block", 0.0))
        if script.get("interrupt"):
            asyncio.get_running_loop().create_task(_interrupt())
        await asyncio.sleep(script["seconds"])
    except asyncio.CancelledError:
        note("cancelled", job.id)
        await asyncio.sleep(script.get("cleanup", 0.0))
        raise
    note("ended", job.id)


async def _interrupt() -> None:
    raise KeyboardInterrupt


@handler(channel="stored", consumer="plain")
async def stored(job: ClaimedJob) -> int:
    """Hold a database connection for a while. Return the pid of its backend."""
    pid = await sync_to_async(_backend)()
    await asyncio.sleep(0.05)
    return pid


@handler(channel="forked", consumer="plain")
def forked(job: ClaimedJob) -> int:
    return _status_of_copy(job)


@handler(channel="forked-transactional", consumer="plain", transactional=True)
def forked_transactional(job: ClaimedJob) -> int:
    return _status_of_copy(job)


@handler(channel="forked-first", consumer="plain", ack_policy=AckPolicy.ACK_FIRST)
def forked_first(job: ClaimedJob) -> None:
    note(f"copy-{_status_of_copy(job)}", job.id)


@handler(channel="forked-async", consumer="plain")
async def forked_async(job: ClaimedJob) -> int:
    return _status_of_copy(job)


@handler(channel="terminated", consumer="plain")
def terminated(job: ClaimedJob) -> int | None:
    """Fork processes and terminate them, as pools do. Return -SIGTERM or another exit code."""
    context = multiprocessing.get_context("fork")
    for seconds in (0.3, 0, 0, 0, 0):
        process = context.Process(target=time.sleep, args=(60,), daemon=True)
        process.start()
        time.sleep(seconds)
        process.terminate()
        process.join(5)
        if process.exitcode != -signal.SIGTERM:
            break
    return process.exitcode


def _status_of_copy(job: ClaimedJob) -> int:
    how = job.json()["copy"]
    note("started", job.id)
    if copy := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
    if how == "exits":
        sys.exit(3)
    if how == "raises":
        raise ValueError(how)
    return 0


def _backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid() FROM pg_sleep(0.05)")
        [pid] = cursor.fetchone()
    return int(pid)


def _run(job: ClaimedJob, script: dict[str, Any]) -> None:
    if "gil" in script:
        ctypes.PyDLL(None).usleep(int(script["gil"] * 1_000_000))
    until = time.monotonic() + script.get("seconds", 0.0)
    gate = Path(script["until"]) if "until" in script else None
    while time.monotonic() < until or (gate is not None and not gate.exists()):
        if script.get("heed") and (job.stopping or job.lost):
            break
        time.sleep(0.01)
    _end(job, script)


def _end(job: ClaimedJob, script: dict[str, Any]) -> None:
    if "throttle" in script and job.deliveries == 1:
        wait = timedelta(seconds=script["throttle"])
        if script.get("by") == "retry":
            raise Retry(after=wait, throttle=True)
        job.throttle(wait)
    if script.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    if "exit" in script:
        os._exit(script["exit"])
    if script.get("interrupt"):
        raise KeyboardInterrupt
    if "fail" in script:
        raise ValueError(script["fail"])
    if "after" in script and not job.retry_count:
        after = timedelta(seconds=script["after"])
        raise Retry(after=after, backoff=script.get("backoff", True))
