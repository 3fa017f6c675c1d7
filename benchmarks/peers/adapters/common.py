"""Orders (commands) that all adapters in Python carry out, with the standard library only.

    ADAPTER migrate
    ADAPTER publish one|many COUNT SECONDS      ends at the count or time, prints a line of JSON
    ADAPTER pace one|many RATE SECONDS          payloads carry their time, `many` publishes bursts
                                                if the peer has such a call, prints a line of JSON
    ADAPTER work PROCESSES                      until killed

PEER_HANDLER is noop, 1ms or latency. In PEER_FOLDER a worker creates `ready.PID` when it holds its
first job, waits for `go`, and appends the times of publishes and starts to `starts`. PG* variables
name the database.
"""

import asyncio
import inspect
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

FOLDER = Path(os.environ.get("PEER_FOLDER", "."))
HANDLER = os.environ.get("PEER_HANDLER", "noop")
BATCH = 1000
BURST = 8
WARM_UP = 10
HANDLER_SECONDS = 0.001
LOOK_SECONDS = 0.005

Payload = dict[str, Any]
Act = Callable[..., Any]

_held = os.environ.get("PEER_HOLD") == "1"
_starts: int | None = None


def handle(payload: Payload) -> None:
    """Handle a job of a queue library whose handlers are plain functions."""
    if _held:
        _hold()
    if HANDLER == "1ms":
        time.sleep(HANDLER_SECONDS)
    elif HANDLER == "latency":
        _note(payload)


async def ahandle(payload: Payload) -> None:
    """Handle a job of a queue library whose handlers are coroutines."""
    if _held:
        _hold()
    if HANDLER == "1ms":
        await asyncio.sleep(HANDLER_SECONDS)
    elif HANDLER == "latency":
        _note(payload)


def _hold() -> None:
    """Mark this process as ready, and wait until the benchmark lets all begin together."""
    global _held
    (FOLDER / f"ready.{os.getpid()}").touch()
    while not (FOLDER / "go").exists():
        time.sleep(LOOK_SECONDS)
    _held = False


def _note(payload: Payload) -> None:
    global _starts
    started = time.clock_gettime(time.CLOCK_MONOTONIC)
    if _starts is None:
        _starts = os.open(FOLDER / "starts", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(_starts, struct.pack("<dd", payload["at"], started))


def run(migrate: Act, publish: Act, publish_many: Act | None, work: Act) -> None:
    """Carry out the command in `sys.argv` by functions for one of the compared queues.

    All arguments may be coroutine functions. `publish` takes an iterable of payloads and publishes
    each by itself. `publish_many` takes an iterable of lists of payloads, and is None if the peer
    has no such call.
    """
    order, *arguments = sys.argv[1:]
    if order == "migrate":
        _await(migrate())
    elif order == "publish":
        how, jobs, seconds = arguments
        _publish(publish_many if how == "many" else publish, how, int(jobs), float(seconds))
    elif order == "pace":
        how, rate, seconds = arguments
        pace = _Pace(float(rate), float(seconds))
        if how == "many" and publish_many:
            _await(publish_many(pace.many()))
        else:
            _await(publish(pace.each()))
        print(json.dumps({"published": pace.published}))
    elif order == "work":
        _await(work(int(arguments[0])))


def _await(result: Any) -> None:
    if inspect.isawaitable(result):
        asyncio.run(_awaited(result))


async def _awaited(result: Any) -> None:
    await result


def _publish(act: Act | None, how: str, jobs: int, seconds: float) -> None:
    if act is None:
        print(json.dumps({"published": 0}))
        return
    stretch = _Stretch(jobs, seconds)
    _await(act(stretch.many() if how == "many" else stretch.each()))
    print(json.dumps({"published": stretch.published, "seconds": stretch.seconds}))


class _Payloads:
    """Payloads to publish, one by one or in batches."""

    at_a_time = BATCH

    def __init__(self) -> None:
        self.published = 0

    def each(self) -> Iterator[Payload]:
        for batch in self._batches(1):
            yield from batch

    def many(self) -> Iterator[list[Payload]]:
        return self._batches(self.at_a_time)

    def _batches(self, size: int) -> Iterator[list[Payload]]:
        raise NotImplementedError


class _Stretch(_Payloads):
    """Payloads for a publisher that takes them as fast as it can, with the seconds it took.

    If the time is limited, the first few payloads or the first batch only warm up and do not count.
    """

    def __init__(self, jobs: int, seconds: float) -> None:
        super().__init__()
        self._jobs, self._most = jobs, seconds
        self.seconds = 0.0

    def _batches(self, size: int) -> Iterator[list[Payload]]:
        yield from (
            (
                [payload(number) for number in range(start, start + size)]
                for start in range(0, WARM_UP, size)
            )
            if self._most
            else ()
        )
        start = time.perf_counter()
        while self.published < self._jobs:
            size = min(size, self._jobs - self.published)
            yield [payload(self.published + number) for number in range(size)]
            self.published += size
            self.seconds = time.perf_counter() - start
            if self._most and self.seconds > self._most:
                return


def payload(number: int) -> Payload:
    return {"number": number, "filler": "x" * 100}


class _Pace(_Payloads):
    """Payloads at an even pace for some seconds, fewer if the publisher is too slow for it."""

    at_a_time = BURST

    def __init__(self, rate: float, seconds: float) -> None:
        super().__init__()
        self._rate, self._seconds = rate, seconds

    def _batches(self, size: int) -> Iterator[list[Payload]]:
        wanted = round(self._rate * self._seconds)
        start = now = time.clock_gettime(time.CLOCK_MONOTONIC)
        while self.published < wanted and now < start + self._seconds:
            time.sleep(max(0.0, start + self.published / self._rate - now))
            size = min(size, wanted - self.published)
            at = {"at": time.clock_gettime(time.CLOCK_MONOTONIC)}
            yield [payload(self.published + number) | at for number in range(size)]
            self.published += size
            now = time.clock_gettime(time.CLOCK_MONOTONIC)


def processes(wanted: int, command: list[str]) -> NoReturn:
    """Run a worker's command `wanted` times, for queues without an option for processes."""
    others = [subprocess.Popen(command) for _ in range(wanted - 1)]
    if not others:
        os.execvp(command[0], command)
    subprocess.run(command, check=True)
    raise SystemExit("The worker ended.")


def script() -> str:
    """Return the path of the adapter that runs."""
    return str(Path(sys.argv[0]).resolve())


def database_url(driver: str = "postgresql", *, user: bool = True) -> str:
    """Return the URL of the database that PG* variables name, for queues that don't read them."""
    from urllib.parse import quote, urlencode

    host = os.environ["PGHOST"]
    who = os.environ["PGUSER"]
    if password := os.environ.get("PGPASSWORD"):
        who += f":{quote(password, safe='')}"
    query = urlencode({"host": host, "port": os.environ["PGPORT"]})
    return f"{driver}://{who if user else ''}@/{os.environ['PGDATABASE']}?{query}"
