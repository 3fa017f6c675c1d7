"""Jobs a second of `pulljobs.client` in one process, and of a bare loop with the same requests."""

import argparse
import asyncio
import json
import logging
import sys
import threading
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Final
from uuid import uuid4

from benchmarks import callers
from benchmarks.callers import TOKEN, Call
from benchmarks.contenders import run_in_processes
from benchmarks.database import CHANNEL, CONSUMER, own_database, query
from benchmarks.http import ROOT, fill, give_tokens
from benchmarks.long_poll import served
from benchmarks.report import print_report
from pulljobs.client import AsyncMessage, Consumer, Message, Subscription, bodies
from pulljobs.client.bodies import Job, Outcome, Settlement

BATCH: Final = 100
CONNECTIONS: Final = (1, 2)
IN_FLIGHT: Final = 3 * BATCH
BARE: Final = "bare loop"


def run(options: argparse.Namespace) -> None:
    """Run the client and the bare loops alternately, and compare their rates."""
    rates: dict[str, list[float]] = {}
    with own_database(), served() as (_, port):
        give_tokens()
        contenders = _contenders(port, options.jobs)
        for turn in range(options.rounds):
            names = sorted(contenders, reverse=bool(turn % 2))
            for name in names:
                rates.setdefault(name, []).append(_rate(contenders[name], options.jobs))
                print(f"{name}: {rates[name][-1]:,.0f} jobs a second", file=sys.stderr)
    medians = {name: median(measured) for name, measured in rates.items()}
    bare = medians[_bare(1)]
    rows = [
        {"contender": name, "jobs a second": rate, "of the bare loop": rate / bare}
        for name, rate in sorted(medians.items())
    ]
    ratios = {
        "ratio": min(medians[name] for name in medians if name.startswith("client")) / bare,
        "ratio_async": medians["client, async handler"] / bare,
        "ratio_threads": medians["client, plain handler"] / bare,
    }
    title = f"{options.jobs:,} jobs, batches of {BATCH}, one process, median of {options.rounds}"
    print_report({title: rows}, ratios, as_json=options.json)


def _contenders(port: int, jobs: int) -> dict[str, Callable[[], None]]:
    ours: dict[str, Callable[[], None]] = {
        "client, async handler": partial(_consume, port, jobs, True),
        "client, plain handler": partial(_consume, port, jobs, False),
    }
    return ours | {_bare(count): partial(_loop, port, count) for count in CONNECTIONS}


def _bare(connections: int) -> str:
    return f"{BARE}, {connections} connection{'s' if connections > 1 else ''}"


def _rate(work: Callable[[], None], jobs: int) -> float:
    """Return the jobs a second from the first claim to the last settlement."""
    query("TRUNCATE pulljobs_job, pulljobs_lease, pulljobs_archived_job, pulljobs_message")
    fill(jobs)
    run_in_processes([work])
    [(done, seconds)] = query(
        "SELECT count(DISTINCT job_id),"
        " extract(epoch FROM max(settled_at) - min(claimed_at))::float8"
        " FROM pulljobs_archived_job WHERE state = 'DELIVERED'"
    )
    if done != jobs:
        raise SystemExit(f"Only {done} of {jobs} jobs were delivered.")
    return jobs / float(str(seconds))


def _consume(port: int, jobs: int, is_async: bool) -> None:
    logging.disable()
    left = jobs
    lock = threading.Lock()

    def handle(message: Message) -> None:
        nonlocal left
        with lock:
            left -= 1
            if not left:
                consumer.stop()

    async def handle_async(message: AsyncMessage) -> None:
        nonlocal left
        left -= 1
        if not left:
            consumer.stop()

    consumer = Consumer(
        handle_async if is_async else handle,
        f"http://127.0.0.1:{port}",
        subscription=Subscription(CHANNEL, CONSUMER, TOKEN, TOKEN),
        max_in_flight=IN_FLIGHT,
    )
    consumer.run()


def _loop(port: int, connections: int) -> None:
    """Pull and then ack jobs on each connection until no job is left."""
    asyncio.run(_loops(port, connections))


async def _loops(port: int, connections: int) -> None:
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(connections)]
    await asyncio.gather(*(_turns(*ends) for ends in streams))
    for _reader, writer in streams:
        writer.close()


async def _turns(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        wanted = bodies.pull(BATCH, uuid4().hex)
        pulled = await callers.send_call(reader, writer, Call("POST", f"{ROOT}/pull", wanted))
        acks = [
            Settlement(Job(job, 0.0), Outcome.DELIVERED) for job in json.loads(pulled)["Result"]
        ]
        if not acks:
            return
        await callers.send_call(reader, writer, Call("POST", f"{ROOT}/ack", bodies.ack(acks)))
