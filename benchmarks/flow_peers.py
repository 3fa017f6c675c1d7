"""Rates of pulljobs with keys, and of procrastinate with locks, each by one worker process."""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from benchmarks.peers import databases
from benchmarks.peers.catalog import PULLJOBS, choose_peers
from benchmarks.peers.environments import prepare
from benchmarks.peers.measures import FAILURES, drain, fill
from benchmarks.peers.peer import Peer
from benchmarks.peers.processes import order
from benchmarks.report import Table

[_PROCRASTINATE] = choose_peers(["procrastinate"])
_KEYED: Final = replace(PULLJOBS, adapter="pulljobs_keys_peer.py")
BY_KEY: Final[Mapping[str, tuple[Peer, ...]]] = {
    PULLJOBS.name: (
        PULLJOBS,
        replace(_KEYED, name="pulljobs-exclusive-keys"),
        replace(_KEYED, name="pulljobs-4-a-key-fair"),
    ),
    _PROCRASTINATE.name: (
        _PROCRASTINATE,
        replace(_PROCRASTINATE, name="procrastinate-locks", adapter="procrastinate_keys_peer.py"),
    ),
}
"""Each software without keys, and then with them."""


def measure_peers(names: list[str], *, jobs: int, keys: int, seconds: float) -> Table:
    """Return rows of the jobs a second of each named library, with keys and without, and ratios.

    A library that does not run here is left out, with the reason on stderr.
    """
    os.environ["PEER_KEYS"] = str(keys)
    table: Table = []
    for name in names:
        rates: dict[str, float] = {}
        for peer in BY_KEY[name]:
            try:
                rates[peer.name] = _drain(peer, jobs, seconds)
            except FAILURES as error:
                print(f"{peer.name}: not run: {error}", file=sys.stderr)
        without = rates.get(name)
        table += [
            {"software": each, "jobs/s": rate, "ratio": f"{rate / without:.2f}" if without else ""}
            for each, rate in rates.items()
        ]
    return table


def _drain(peer: Peer, jobs: int, seconds: float) -> float:
    environment, database = prepare(peer), databases.name_of(peer, "flow")
    databases.create(database)
    try:
        order(peer, environment, database, "migrate")
        fill(peer, environment, database, jobs)
        databases.settle(database)
        figures = drain(peer, environment, database, processes=1, handler="noop", seconds=seconds)
    finally:
        databases.drop(database)
    print(f"{peer.name}: {figures['rate']:,.0f} jobs/s", file=sys.stderr)
    return float(figures["rate"])
