"""Cost of settling members of a batch, measured in pairs with jobs that are in no batch."""

import argparse
import random
import time
from collections.abc import Callable
from math import sqrt
from pathlib import Path
from typing import Any, Final

from benchmarks.database import CHANNEL, CONSUMER, own_database, query
from benchmarks.loops import ClaimedIds, OurLoop
from benchmarks.ratios import paired_ratio
from benchmarks.report import Table, print_report
from pulljobs.engine import members
from pulljobs.models import Channel, Consumer
from pulljobs.publishing import publish_many

MEMBERS: Final = "members"
"""Channel whose jobs are members of a batch."""
MAKE_MEMBERS: Final = (
    "UPDATE pulljobs_job SET batch_id = 1 WHERE consumer_id = {} AND state = 'QUEUED'"
)
NANOSECONDS: Final = 1e9
Costs = dict[str, list[float]]
"""Seconds of each settling call, by name: elapsed, or CPU of client and server together."""


def run(options: argparse.Namespace) -> None:
    """Print the ratio of the times that members and other jobs take to settle, by claim size."""
    table: Table = []
    with own_database():
        loops, cpu = _make_loops(), cpu_of_both()
        for size in options.sizes:
            table += _compare(loops, cpu, size, max(3, round(options.pairs / sqrt(size))))
        print_report({"Members, in times of other jobs": table}, {}, as_json=options.json)


def cpu_of_both() -> Callable[[], float]:
    """Return a function that reads the CPU seconds of this thread plus its server process."""
    [[server]] = query("SELECT pg_backend_pid()")
    file = Path(f"/proc/{server}/schedstat")
    return lambda: time.thread_time() + int(file.read_text().split()[0]) / NANOSECONDS


def _make_loops() -> dict[str, OurLoop]:
    """Return the loops that claim and settle, by channel: jobs in no batch, and members."""
    channel = Channel.objects.create(name=MEMBERS)
    served = Consumer.objects.create(channel=channel, name=CONSUMER)
    return {CHANNEL: OurLoop(), MEMBERS: OurLoop(served=served)}


def _compare(loops: dict[str, OurLoop], cpu: Callable[[], float], size: int, pairs: int) -> Table:
    costs: dict[str, Costs] = {name: {"clock": [], "CPU": []} for name in loops}
    for name in loops:
        publish_many(name, [b"x"] * (size * pairs))
    query(MAKE_MEMBERS.format(Consumer.objects.get(channel__name=MEMBERS).pk))
    query("VACUUM ANALYZE")  # The update must leave nothing that settlements have to skip.
    for _pair in range(pairs):
        for name in random.sample(list(loops), len(loops)):
            _expect_members(name == MEMBERS)
            _settle(loops[name], cpu, size, costs[name])
    plain, of_members = costs[CHANNEL], costs[MEMBERS]
    return [_row(size, name, plain[name], of_members[name]) for name in plain]


def _settle(loop: OurLoop, cpu: Callable[[], float], size: int, costs: Costs) -> None:
    """Claim and settle `size` jobs. Append the settlement's CPU and wall seconds to `costs`."""
    claimed = loop.claim(size)
    assert claimed is not None, "There are jobs for every pair."
    began, cpu_before = time.perf_counter(), cpu()
    _finish(loop, claimed)
    costs["CPU"].append(cpu() - cpu_before)
    costs["clock"].append(time.perf_counter() - began)


def _finish(loop: OurLoop, claimed: ClaimedIds) -> None:
    if loop.finish(claimed) != len(claimed.ids):
        raise RuntimeError("A settlement lost a job.")


def _expect_members(is_expected: bool) -> None:
    """Make this process settle as with members of batches if True, and as without them if False."""
    module: Any = members
    module._until = float("inf") if is_expected else float("-inf")


def _row(size: int, name: str, plain: list[float], of_members: list[float]) -> dict[str, Any]:
    ratio = paired_ratio(plain, of_members)
    return {
        "jobs": size,
        "time": name,
        "pairs": len(plain),
        "ratio": round(ratio.mean, 3),
        "95 %": f"{ratio.low:.3f} to {ratio.high:.3f}",
    }
