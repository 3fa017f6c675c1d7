"""Jobs a second of consumers with limits that hold nothing back, compared with none."""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from benchmarks.database import EMPTIED, consumer, own_database, query
from benchmarks.report import Table, print_report
from pulljobs import pulling, registering
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.models import Consumer
from pulljobs.publishing import Draft, publish_many
from pulljobs.pulling import Puller
from pulljobs.storage.statements import dedicate

UNLIMITED: Final = "without limits"
HIGH: Final = "1000000/s"
"""Rate that allows every claim of a drain."""
MANY: Final = 1_000_000
LEAST: Final = 0.6
"""Ratio to the rate without limits that the design promises."""
BATCH: Final = 1_000


@dataclass(frozen=True)
class Design:
    """Limits of a consumer, and the jobs that it drains."""

    limits: Mapping[str, Any]
    make_draft: Callable[[int], Draft]
    is_promised: bool = True
    """True if the ratio of the rates is promised."""


def _plain(number: int) -> Draft:
    return Draft(payload=b"x")


def _dear(number: int) -> Draft:
    return Draft(payload=b"x", cost=1 + number % 3)


DESIGNS: Final[Mapping[str, Design]] = {
    UNLIMITED: Design({}, _plain),
    "rate": Design({"rate": HIGH}, _plain),
    "rate in windows": Design({"rate": HIGH, "rate_window": True}, _plain),
    "rate and costs": Design({"rate": HIGH}, _dear, is_promised=False),
    "max_in_flight": Design({"max_in_flight": MANY}, _plain),
    "group with both": Design({"limit_group": "bench"}, _plain, is_promised=False),
}


def run(options: argparse.Namespace) -> None:
    """Drain with every design in turns, and print medians and ratios."""
    with own_database():
        registering.put_limit_group("bench", {"rate": HIGH, "max_in_flight": MANY})
        dedicate("default")
        rates: dict[str, list[float]] = {name: [] for name in DESIGNS}
        for number in range(options.rounds):
            for name, design in DESIGNS.items():
                rates[name].append(_drain(design, options.jobs, options.wanted))
                text = f"round {number + 1}: {name}: {rates[name][-1]:,.0f} jobs/s"
                print(text, file=sys.stderr)
        _report(rates, as_json=options.json)


def _drain(design: Design, jobs: int, wanted: int) -> float:
    """Return the jobs that were claimed and delivered a second."""
    query(f"TRUNCATE {EMPTIED}, pulljobs_flow_bucket")
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
    blank = {"rate": "", "rate_window": False, "max_in_flight": None, "limit_group": None}
    key = {"channel": consumer().channel, "name": consumer().name}
    fields = {"type": "pull", "callback_url": "", "token": "bench"}
    registering.put(Consumer, key, lambda _row: {**fields, **blank, **limits})


def _report(rates: Mapping[str, list[float]], *, as_json: bool) -> None:
    medians = {name: median(own) for name, own in rates.items()}
    ratios = {name: rate / medians[UNLIMITED] for name, rate in medians.items()}
    table: Table = [
        {
            "limits": name,
            "jobs/s": medians[name],
            "of the rate without": f"{ratios[name]:.2f}",
            "promised": LEAST if DESIGNS[name].is_promised and name != UNLIMITED else "",
        }
        for name in DESIGNS
    ]
    figures = {
        f"ratio_{name.replace(' ', '_')}": round(ratios[name], 3)
        for name in DESIGNS
        if name != UNLIMITED
    }
    print_report({"Limits that hold nothing back": table}, figures, as_json=as_json)
