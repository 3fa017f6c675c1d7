"""Rate of jobs with free keys that are queued behind many jobs of a busy key."""

import argparse
import sys
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.database import EMPTIED, consumer, own_database, query
from benchmarks.report import Table, print_report
from pulljobs import pulling
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.models import Consumer
from pulljobs.publishing import Draft, publish_many
from pulljobs.pulling import Puller
from pulljobs.storage.sessions import dedicate

CLAIM: Final = 200
FREE_KEYS: Final = 1_000
BUSY: Final = "busy"
TICKS: Final = 100
"""Ticks a second of the times in /proc."""


def run(options: argparse.Namespace) -> None:
    """Measure jobs of free keys, alternately with and without jobs of a busy key before them."""
    with own_database():
        Consumer.objects.update(exclusive_keys=True)
        dedicate("default")
        runs: dict[int, list[tuple[float, float]]] = {0: [], options.busy: []}
        for round in range(options.rounds):
            for busy, done in runs.items():
                done.append(_drain(busy, options.free))
                rate, cpu = done[-1]
                print(
                    f"round {round + 1}: {busy} in front: {rate:,.0f} jobs/s, {cpu:.0f} us",
                    file=sys.stderr,
                )
        _report(runs, as_json=options.json)


def _drain(busy: int, free: int) -> tuple[float, float]:
    """Return the jobs of free keys a second and the server's CPU time for each in microseconds."""
    query(f"TRUNCATE {EMPTIED}, pulljobs_exclusive_key")
    puller = Puller("default", consumer())
    keys = (f"free {number % FREE_KEYS}" for number in range(free))
    _publish([BUSY])
    assert len(puller.claim(1).jobs) == 1  # for the whole of the drain
    _publish([BUSY] * busy)
    _publish(keys)
    query("VACUUM ANALYZE pulljobs_job")
    left, started, cpu = free, time.monotonic(), _server_seconds()
    while left:
        claim = puller.claim(CLAIM)
        if claim.taken is not None:
            held = [Held(job.id, claim.taken.lease_token) for job, _message in claim.jobs]
            left -= len(pulling.finish([outcomes.deliver(job) for job in held]).states)
    seconds = time.monotonic() - started
    return free / seconds, (_server_seconds() - cpu) / free * 1e6


def _publish(keys: Iterable[str]) -> None:
    remaining = iter(keys)
    while batch := list(islice(remaining, 1000)):
        publish_many("bench", [Draft(payload=b"x", key=key) for key in batch])


def _server_seconds() -> float:
    """Return the CPU time of the server process of this connection, 0 for a distant server."""
    [(pid,)] = query("SELECT pg_backend_pid()")
    stat = Path(f"/proc/{pid}/stat")
    fields = stat.read_text().rpartition(")")[2].split() if stat.exists() else ["0"] * 13
    return (int(fields[11]) + int(fields[12])) / TICKS


def _report(runs: dict[int, list[tuple[float, float]]], *, as_json: bool) -> None:
    table: Table = [
        {
            "in front": f"{busy:,}",
            "free jobs/s": median(rate for rate, _cpu in done),
            "server us a job": median(cpu for _rate, cpu in done),
        }
        for busy, done in runs.items()
    ]
    alone, behind = (median(rate for rate, _cpu in done) for done in runs.values())
    figures: dict[str, Any] = {"ratio_behind_busy_key": round(behind / alone, 3)}
    print_report({"Free keys behind a busy key": table}, figures, as_json=as_json)
