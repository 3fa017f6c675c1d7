"""Push delivery to quick endpoints among many slow endpoints, by one worker process."""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, Final, NamedTuple

from django.db import connections

from benchmarks.contenders import FORK
from benchmarks.database import own_database, query
from benchmarks.endpoints import QUICK, SLOW, Arrival, serve
from benchmarks.report import percentiles, print_report
from pulljobs.models import Channel, Consumer
from pulljobs.publishing import publish, publish_many

RATE: Final = 50.0
"""Messages a second to all quick endpoints together."""
START_SECONDS: Final = 120
ROUNDS_OF_WARM_UP: Final = 20
LOOK_SECONDS: Final = 0.5
SETTINGS: Final = {"PUSH_ALLOWED_NETWORKS": ["127.0.0.0/8"]}


def run(options: argparse.Namespace) -> None:
    """Measure the quick endpoints alone, then among the slow endpoints."""
    with own_database():
        alone = _measure(0, options.quick, options)
        among_slow = _measure(options.slow, options.quick, options)
    rows = [_row("alone", alone), _row(f"among {options.slow} slow endpoints", among_slow)]
    delay = rows[1]["p99 ms"] - rows[0]["p99 ms"]
    tables = {f"From publish to arrival at {options.quick} quick endpoints": rows}
    print_report(tables, {"delay_p99_ms": round(delay, 1)}, as_json=options.json)


class Deliveries(NamedTuple):
    """Deliveries of one measurement."""

    late: list[float]
    """Seconds from commit to arrival of each quick message, infinite if it did not arrive."""
    slow: int
    """Number of slow deliveries."""


def _row(name: str, measured: Deliveries) -> dict[str, Any]:
    p50, p99 = percentiles(measured.late)
    return {
        "quick endpoints": name,
        "messages": len(measured.late),
        "p50 ms": p50,
        "p99 ms": p99,
        "longest ms": max(measured.late) * 1000,
        "slow deliveries": measured.slow,
    }


def _measure(slow: int, quick: int, options: argparse.Namespace) -> Deliveries:
    """Measure quick deliveries while every slow endpoint has more messages than it can take."""
    _empty()
    with _endpoints(options.seconds_each) as (port, arrived), _worker():
        names = _consumers(SLOW, slow, port), _consumers(QUICK, quick, port)
        connections.close_all()
        rounds = ROUNDS_OF_WARM_UP + int(options.seconds / options.seconds_each)
        for channel in names[0]:
            publish_many(channel, [json.dumps([SLOW, 0])] * rounds)
        for channel in names[1]:
            publish(channel, json.dumps([QUICK, 0]))
        _wait(lambda: len(arrived()) >= 2 * slow + quick)
        committed = _publish(names[1], time.monotonic() + options.seconds)
        time.sleep(options.seconds_each)
        arrivals = arrived()
    times = {arrival.number: arrival.at for arrival in arrivals if arrival.kind == QUICK}
    late = [max(0.0, times.get(number, inf) - at) for number, at in committed.items()]
    return Deliveries(late, sum(arrival.kind == SLOW for arrival in arrivals))


def _wait(condition: Callable[[], bool]) -> None:
    """Wait for a condition. Raise SystemExit if it does not come true."""
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"The first deliveries did not arrive within {START_SECONDS} s.")
        time.sleep(LOOK_SECONDS)


def _publish(channels: list[str], end: float) -> dict[int, float]:
    """Publish to each channel in turn at an even pace. Return commit times by number, from 1."""
    committed: dict[int, float] = {}
    due = time.monotonic()
    while due < end:
        time.sleep(max(0.0, due - time.monotonic()))
        number = len(committed) + 1
        publish(channels[number % len(channels)], json.dumps([QUICK, number]))
        committed[number] = time.monotonic()
        due += 1 / RATE
    return committed


def _consumers(kind: str, count: int, port: int) -> list[str]:
    """Create channels, each with a push consumer at its own address. Return their names."""
    names = [f"{kind}-{number}" for number in range(count)]
    for number, name in enumerate(names):
        channel = Channel.objects.create(name=name)
        host = f"127.{1 if kind == SLOW else 2}.{number // 250}.{number % 250 + 1}"
        Consumer.objects.create(
            channel=channel,
            name=name,
            type=Consumer.Type.PUSH,
            callback_url=f"http://{host}:{port}/",
        )
    return names


def _empty() -> None:
    query(
        "TRUNCATE pulljobs_job, pulljobs_lease, pulljobs_archived_job, pulljobs_message,"
        " pulljobs_publication, pulljobs_consumer, pulljobs_channel CASCADE"
    )


@contextmanager
def _endpoints(seconds: float) -> Iterator[Any]:
    """Run all endpoints in a process. Yield their port and a function that returns the arrivals."""
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=serve, args=(theirs, seconds), daemon=True)
    connections.close_all()
    process.start()

    def arrived() -> list[Arrival]:
        ours.send(None)
        return [Arrival(*fields) for fields in ours.recv()]

    try:
        yield ours.recv(), arrived
    finally:
        process.terminate()
        process.join()


@contextmanager
def _worker() -> Iterator[None]:
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
        "PULLJOBS_BENCHMARK_SETTINGS": json.dumps(SETTINGS),
    }
    command = [sys.executable, "-m", "django", "runpullworker", "--verbosity", "0"]
    command += ["--graceful-timeout", "3"]
    worker = subprocess.Popen(command, env=environment)
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(START_SECONDS)
