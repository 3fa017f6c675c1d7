"""Steady load while another session holds a snapshot, and a drain afterwards."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Final

from benchmarks.peers import databases
from benchmarks.peers.environments import Environment
from benchmarks.peers.latency import warm_up
from benchmarks.peers.load import compare_loads, measure_load
from benchmarks.peers.measures import FAILURES, Figures, Sizes, drain, fill
from benchmarks.peers.peer import Peer
from benchmarks.peers.processes import working

WHILE: Final = "while held"
AFTER: Final = "held"
WITHOUT: Final = 0.1
MOST_WITHOUT: Final = 60.0
"""Longest load before the snapshot in seconds. A tenth of the load with it is enough."""

Prepared = tuple[Peer, Environment]
Note = Callable[[Peer, str, list[Figures] | str], None]
"""Callback for the rounds of one queue's measure, or for the reason why there are none."""


def measure_held(group: Sequence[Prepared], sizes: Sizes, rounds: int, note: Note) -> None:
    """Load the queues of a group at once while snapshots are held. Then measure each alone.

    Every queue gets the same jobs at the same pace. `note` is called with each result.
    """
    with ExitStack() as stack:
        for peer, _environment in group:
            name = databases.name_of(peer, "held")
            databases.create(name, databases.name_of(peer, "empty"))
            stack.callback(databases.drop, name)
        with ThreadPoolExecutor(len(group)) as threads:
            loads = threads.map(lambda peer: _try(partial(_load, peer, sizes, stack)), group)
        loaded = []
        for prepared, load in zip(group, loads, strict=True):
            note(prepared[0], WHILE, load)
            loaded += [prepared] if isinstance(load, list) else []
        for prepared in loaded:
            note(prepared[0], AFTER, _try(partial(_drain, prepared, sizes, rounds)))


def _try(measure: Callable[[], list[Figures]]) -> list[Figures] | str:
    try:
        return measure()
    except FAILURES as error:
        return str(error)


def _load(prepared: Prepared, sizes: Sizes, snapshots: ExitStack) -> list[Figures]:
    name = databases.name_of(prepared[0], "held")
    with working(*prepared, name, handler="latency") as workers:
        warm_up(*prepared, name, workers)
        load = partial(measure_load, *prepared, name, workers, sizes.held_rate)
        without = load(min(WITHOUT * sizes.held_seconds, MOST_WITHOUT))
        snapshots.enter_context(databases.held_snapshot(name))
        during = load(sizes.held_seconds)
    asked = {"offered": sizes.held_rate, "seconds": sizes.held_seconds}
    return [asked | compare_loads(during, without)]


def _drain(prepared: Prepared, sizes: Sizes, rounds: int) -> list[Figures]:
    """Measure how fast one worker ends the jobs that the load left, filled up if few are left."""
    name = databases.name_of(prepared[0], "held")
    figures = []
    for _round in range(rounds):
        with databases.connect(name) as session:
            waiting = databases.count_left(session, prepared[0])
        if waiting < sizes.held_jobs / 2:
            fill(*prepared, name, sizes.held_jobs, waiting=waiting)
        figures.append(
            drain(*prepared, name, processes=1, handler="noop", seconds=sizes.drain_seconds)
        )
    return figures
