"""Orders of the adapters of `python -m benchmarks workflows`.

    ADAPTER migrate                     tables of the peer and of the effects
    ADAPTER start steps RUNS            runs of ten steps, each with an effect in its commit
    ADAPTER start sleeps RUNS           runs that sleep for a day
    ADAPTER start batch MEMBERS         batch with a callback, if the peer has batches
    ADAPTER latency start|signal FIRST RUNS
                                        one after the other, prints the seconds as a line of JSON
    ADAPTER work PROCESSES              until killed

In PEER_FOLDER a run appends its number to `waiting` before it waits and to `resumed`
after it started or was resumed, both with the time. PG* variables name the database.
"""

import asyncio
import inspect
import json
import os
import struct
import sys
import time
from pathlib import Path

import psycopg

FOLDER = Path(os.environ.get("PEER_FOLDER", "."))
STEPS = 10
EFFECTS = (
    "CREATE TABLE effect (run text NOT NULL, step integer NOT NULL,"
    " written_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (run, step))"
)
INSERT = "INSERT INTO effect (run, step) VALUES (%s, %s)"
LOOK_SECONDS = 0.0002
PATIENCE = 60
SUSPENDED_SECONDS = 0.1
"""Time after which a run that is about to wait is surely suspended."""
NOTE = struct.Struct("<qd")


def create_effects():
    """Create the table of the effects."""
    with psycopg.connect(autocommit=True) as connection:
        connection.execute(EFFECTS)


def note(name, run):
    """Append the number of a run and the time to the named file, which all processes share."""
    file = os.open(FOLDER / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, NOTE.pack(run, time.clock_gettime(time.CLOCK_MONOTONIC)))
    os.close(file)


def notes(name):
    """Return the monotonic times in the named file, by the number of the run."""
    path = FOLDER / name
    return dict(NOTE.iter_unpack(path.read_bytes())) if path.exists() else {}


async def wait_for(name, run):
    """Wait until the named file has the number of a run, and return its time."""
    deadline = time.monotonic() + PATIENCE
    while (at := notes(name).get(run)) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"run {run} is not in {name}")
        await asyncio.sleep(LOOK_SECONDS)
    return at


async def call(function, *arguments):
    """Call a coroutine function here, or a plain function in a thread.

    Some libraries refuse calls in a thread with an event loop.
    """
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    return await asyncio.to_thread(function, *arguments)


async def latencies(kind, first, runs, start, send):
    """Return how long each run took to resume, from its start or, for kind `signal`, its signal."""
    seconds = []
    for run in range(first, first + runs):
        began = time.clock_gettime(time.CLOCK_MONOTONIC)
        await call(start, kind, run)
        if kind == "signal":
            await wait_for("waiting", run)
            await asyncio.sleep(SUSPENDED_SECONDS)
            began = time.clock_gettime(time.CLOCK_MONOTONIC)
            await call(send, run)
        seconds.append(await wait_for("resumed", run) - began)
    return seconds


async def run(migrate, start, start_many, send, work):
    """Carry out the command in `sys.argv` by these functions, which may be coroutine functions."""
    order, *arguments = sys.argv[1:]
    if order == "migrate":
        create_effects()
        await call(migrate)
    elif order == "start":
        await call(start_many, arguments[0], int(arguments[1]))
    elif order == "latency":
        kind, first, runs = arguments
        seconds = await latencies(kind, int(first), int(runs), start, send)
        print(json.dumps({"seconds": seconds}))
    elif order == "work":
        await call(work, int(arguments[0]))
