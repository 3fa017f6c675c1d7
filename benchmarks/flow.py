"""Jobs a second of consumers with limits too high to delay a job, and of consumers with keys."""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from benchmarks.database import EMPTIED, consumer, own_database, query
from benchmarks.flow_peers import measure_peers
from benchmarks.report import Table, print_report
from pulljobs import pulling, registering
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.models import Consumer
from pulljobs.publishing import Draft, publish_many
from pulljobs.pulling import Puller
from pulljobs.storage.sessions import dedicate

UNLIMITED: Final = "without limits"
HIGH: Final = "1000000/s"
"""Rate that allows every claim of a drain."""
MANY: Final = 1_000_000
LEAST: Final = 0.6
LEAST_BY_KEY: Final = 0.5
KEYS: Final = 10_000
EXCLUSIVE: Final = "exclusive keys"
BATCH: Final = 1_000


@dataclass(frozen=True)
class Design:
    """Consumer to measure: its limits, the jobs it gets, and the target for its rate."""

    limits: Mapping[str, Any]
    make_draft: Callable[[int], Draft]
    least: float | None = None
    """Ratio to the rate of `against` that the design promises."""
    against: str = UNLIMITED


def _plain(number: int) -> Draft:
    return Draft(payload=b"x")


def _dear(number: int) -> Draft:
    return Draft(payload=b"x", cost=1 + number % 3)


def _keyed(number: int) -> Draft:
    return Draft(payload=b"x", key=str(number % KEYS))


DESIGNS: Final[Mapping[str, Design]] = {
    UNLIMITED: Design({}, _plain),
    "rate": Design({"rate": HIGH}, _plain, LEAST),
    "rate in windows": Design({"rate": HIGH, "rate_window": True}, _plain, LEAST),
    "rate and costs": Design({"rate": HIGH}, _dear),
    "max_in_flight": Design({"max_in_flight": MANY}, _plain, LEAST),
    "group with both": Design({"limit_group": "bench"}, _plain),
    EXCLUSIVE: Design({"exclusive_keys": True}, _keyed),
    "4 a key and fair": Design(
        {"max_in_flight_per_key": 4, "fair_by_key": True}, _keyed, LEAST_BY_KEY, EXCLUSIVE
    ),
}


def run(options: argparse.Namespace) -> None:
    """Claim and deliver all jobs under each design, round after round. Print medians and ratios."""
    with own_database():
        registering.put_limit_group("bench", {"rate": HIGH, "max_in_flight": MANY})
        dedicate("default")
        rates: dict[str, list[float]] = {name: [] for name in DESIGNS}
        for number in range(options.rounds):
            for name, design in DESIGNS.items():
                rates[name].append(_drain(design, options.jobs, options.wanted))
                text = f"round {number + 1}: {name}: {rates[name][-1]:,.0f} jobs/s"
                print(text, file=sys.stderr)
        of_peers = measure_peers(
            options.peers,
            jobs=options.peer_jobs,
            keys=options.peer_keys,
            seconds=options.peer_seconds,
        )
        _report(rates, of_peers, as_json=options.json)


def _drain(design: Design, jobs: int, wanted: int) -> float:
    """Publish jobs, claim and deliver them under a design, and return the jobs a second."""
    query(f"TRUNCATE {EMPTIED}, pulljobs_flow_bucket, pulljobs_flow_key, pulljobs_exclusive_key")
    _set_limits(design.limits)
    for start in range(0, jobs, BATCH):
        numbers = range(start, min(start + BATCH, jobs))
        publish_many("bench", [design.make_draft(number) for number in numbers])
    query("VACUUM ANALYZE pulljobs_job")
    puller, left, started = Puller("default", consumer()), jobs, time.monotonic()
    while left:
        claim = puller.claim(wanted)
        if claim.taken is not None:
            held = [Held(job.id, claim.taken.lease_token) for job, _message in claim.jobs]
            left -= len(pulling.finish([outcomes.deliver(job) for job in held]).states)
    return jobs / (time.monotonic() - started)


def _set_limits(limits: Mapping[str, Any]) -> None:
    blank: dict[str, Any] = {"rate": "", "rate_window": False, "exclusive_keys": False}
    blank |= dict.fromkeys(("max_in_flight", "limit_group", "max_in_flight_per_key"))
    blank["fair_by_key"] = False
    key = {"channel": consumer().channel, "name": consumer().name}
    fields = {"type": "pull", "callback_url": "", "token": "bench"}
    registering.put(Consumer, key, lambda _row: {**fields, **blank, **limits})


def _report(rates: Mapping[str, list[float]], of_peers: Table, *, as_json: bool) -> None:
    tables = {"By key, next to a peer": of_peers} if of_peers else {}
    medians = {name: median(own) for name, own in rates.items() if own}
    if not medians:
        print_report(tables, {}, as_json=as_json)
        return
    ratios = {name: rate / medians[DESIGNS[name].against] for name, rate in medians.items()}
    table: Table = [
        {
            "limits": name,
            "jobs/s": medians[name],
            "ratio": f"{ratios[name]:.2f}",
            "to": DESIGNS[name].against,
            "promised": DESIGNS[name].least or "",
        }
        for name in DESIGNS
    ]
    figures = {
        f"ratio_{name.replace(' ', '_')}": round(ratios[name], 3)
        for name in DESIGNS
        if name != UNLIMITED
    }
    print_report({"Limits that hold nothing back": table, **tables}, figures, as_json=as_json)
