"""`python -m benchmarks consumers`: the same jobs among few and among many consumers."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, Final

import psutil
from django.db import connection

from benchmarks.consumers.pull_handlers import VARIABLE
from benchmarks.database import own_database, query
from benchmarks.loops import PastRun
from benchmarks.peers.processes import ServerCpu, cpu_of
from benchmarks.report import Table, percentiles, print_report
from pulljobs.conf import settings
from pulljobs.engine.outcomes import Settlement, all_held, deliver
from pulljobs.models import Channel, Consumer
from pulljobs.publishing import publish
from pulljobs.pulling import Puller, finish
from pulljobs.storage import sessions

PAYLOAD: Final = {"number": 1, "filler": "x" * 100}
CLAIM: Final = 500
FLUSH: Final = 20
"""Outcomes in a flush, as a worker with a few hundred jobs a second has them."""
START_SECONDS: Final = 120
TAIL_SECONDS: Final = 1.0
MICRO: Final = 1e6


def run(options: argparse.Namespace) -> None:
    """Measure with each number of idle consumers, the fewest first, in one database."""
    with own_database():
        sessions.dedicate(settings().DATABASE)
        table = [_measure(options, idle) for idle in sorted(options.idle)]
    print_report({f"{options.busy} busy consumers": table}, _growth(table), as_json=options.json)


def _measure(options: argparse.Namespace, idle: int) -> dict[str, Any]:
    consumers = _add_consumers(options.busy + idle)
    query("VACUUM ANALYZE")
    pullers = [Puller(settings().DATABASE, each) for each in consumers[: options.busy]]
    rounds = [_one_by_one(pullers, options.jobs) for _round in range(options.rounds + 1)][1:]
    row = {name: median(each[name] for each in rounds) for name in rounds[0]}
    return {"idle": idle, **row, **_worker(options, len(consumers))}


def _add_consumers(wanted: int) -> list[Consumer]:
    """Create consumers, each with its own channel, until there are `wanted`. Return all by id."""
    known = Consumer.objects.filter(name="plain").count()
    channels = [Channel(name=f"many-{number}") for number in range(known, wanted)]
    Channel.objects.bulk_create(channels)
    Consumer.objects.bulk_create(Consumer(channel=each, name="plain") for each in channels)
    return list(Consumer.objects.filter(name="plain").select_related("channel").order_by("pk"))


def _one_by_one(pullers: list[Puller], jobs: int) -> dict[str, float]:
    """Publish, claim and finish jobs of all consumers. Return microseconds a job by call."""
    began = time.perf_counter()
    for number in range(jobs):
        publish(pullers[number % len(pullers)].consumer.channel.name, PAYLOAD)
    published = time.perf_counter()
    claims = [puller.claim(CLAIM) for puller in pullers]
    claimed = time.perf_counter()
    outcomes = [each for claim in claims for each in _outcomes(claim)]
    mixed = [each for first in range(len(pullers)) for each in outcomes[first :: len(pullers)]]
    settled = time.perf_counter()
    for start in range(0, len(mixed), FLUSH):
        finish(mixed[start : start + FLUSH])
    ended = time.perf_counter()
    return {
        "publish us": (published - began) / jobs * MICRO,
        "claim us": (claimed - published) / jobs * MICRO,
        "finish us": (ended - settled) / jobs * MICRO,
    }


def _outcomes(claim: Any) -> list[Settlement]:
    if claim.taken is None:
        return []
    helds = all_held(claim.taken.lease_token, [job.id for job, _message in claim.jobs])
    return [deliver(held, run=PastRun(time.monotonic(), 0.0)) for held in helds]


def _worker(options: argparse.Namespace, consumers: int) -> dict[str, float]:
    """Publish at an even pace for a worker. Return CPU us a job, and ms from publish to start."""
    with _working(consumers) as process:
        time.sleep(options.rest)
        connection.ensure_connection()
        server = ServerCpu(connection.connection)
        query("TRUNCATE pulljobs_archived_job")
        before, server_before = cpu_of(process), server.cpu() or 0.0
        jobs = round(options.rate * options.seconds)
        began = time.monotonic()
        for number in range(jobs):
            time.sleep(max(0.0, began + number / options.rate - time.monotonic()))
            publish(f"many-{number % options.busy}", PAYLOAD)
        time.sleep(TAIL_SECONDS)
        seconds = cpu_of(process) - before, (server.cpu() or 0.0) - server_before
    rows = query(
        "SELECT extract(epoch FROM started_at - created_at)::float8 FROM pulljobs_archived_job"
    )
    p50, p99 = percentiles([float(str(waited)) for (waited,) in rows])
    return {
        "worker us": seconds[0] / jobs * MICRO,
        "server us": seconds[1] / jobs * MICRO,
        "start p50 ms": p50,
        "start p99 ms": p99,
    }


@contextmanager
def _working(consumers: int) -> Iterator[psutil.Process]:
    """Run a worker, and yield its process once it has done a job and waits for all consumers."""
    command = [sys.executable, "-m", "django", "runpullworker", "--verbosity", "0"]
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "benchmarks.consumers.settings",
        VARIABLE: str(consumers),
    }
    worker = subprocess.Popen(command, env=environment)
    try:
        publish("many-0", PAYLOAD)
        deadline = time.monotonic() + START_SECONDS
        while (
            query("SELECT count(*) FROM pulljobs_pull_waiter")[0][0] != consumers + 1
            or (query("SELECT count(*) FROM pulljobs_job")[0][0])
        ):
            if time.monotonic() > deadline or worker.poll() is not None:
                raise SystemExit("The worker did not do its first job.")
            time.sleep(0.1)
        yield psutil.Process(worker.pid)
    finally:
        worker.terminate()
        worker.wait()


def _growth(table: Table) -> dict[str, float]:
    """Return the ratio of each figure with the most idle consumers to that with the fewest."""
    fewest, most = table[0], table[-1]
    return {
        f"{name.rpartition(' ')[0].replace(' ', '_')}_growth": round(most[name] / fewest[name], 2)
        for name in fewest
        if name != "idle"
    }
