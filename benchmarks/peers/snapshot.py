"""A steady load while another session holds a snapshot for minutes, and jobs a second after it."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Final

from benchmarks.peers import databases
from benchmarks.peers.environments import Environment
from benchmarks.peers.latency import warm_up
from benchmarks.peers.load import beside, stretch
from benchmarks.peers.measures import FAILURES, Figures, Sizes, drain, fill
from benchmarks.peers.peer import Peer
from benchmarks.peers.processes import working

WHILE: Final = "while held"
AFTER: Final = "held"
WITHOUT: Final = 0.1
MOST_WITHOUT: Final = 60.0
"""Seconds of the load without the snapshot, before it; or that share of its time, if less."""

Prepared = tuple[Peer, Environment]
Note = Callable[[Peer, str, list[Figures] | str], None]
"""Told of a peer's measure: its rounds, or why there are none."""


def held(group: Sequence[Prepared], sizes: Sizes, rounds: int, note: Note) -> None:
    """Hold snapshots for all of the group under load, then drain each while nobody else works.

    Every peer is offered the same jobs at the same pace.
    """
    with ExitStack() as stack:
        for peer, _environment in group:
            name = databases.name_of(peer, "held")
            databases.create(name, databases.name_of(peer, "empty"))
            stack.callback(databases.drop, name)
        with ThreadPoolExecutor(len(group)) as threads:
            loads = threads.map(lambda one: _tried(partial(_loaded, one, sizes, stack)), group)
        loaded = []
        for one, load in zip(group, loads, strict=True):
            note(one[0], WHILE, load)
            loaded += [one] if isinstance(load, list) else []
        for one in loaded:
            note(one[0], AFTER, _tried(partial(_drained, one, sizes, rounds)))


def _tried(measure: Callable[[], list[Figures]]) -> list[Figures] | str:
    try:
        return measure()
    except FAILURES as error:
        return str(error)


def _loaded(prepared: Prepared, sizes: Sizes, snapshots: ExitStack) -> list[Figures]:
    name = databases.name_of(prepared[0], "held")
    with working(*prepared, name, handler="latency") as workers:
        warm_up(*prepared, name, workers)
        load = partial(stretch, *prepared, name, workers, sizes.held_rate)
        without = load(min(WITHOUT * sizes.held_seconds, MOST_WITHOUT))
        snapshots.enter_context(databases.held_snapshot(name))
        during = load(sizes.held_seconds)
    asked = {"offered": sizes.held_rate, "seconds": sizes.held_seconds}
    return [asked | beside(during, without)]


def _drained(prepared: Prepared, sizes: Sizes, rounds: int) -> list[Figures]:
    """Of what the load left; where that is little, more is queued before."""
    name = databases.name_of(prepared[0], "held")
    figures = []
    for _round in range(rounds):
        with databases.connect(name) as session:
            waiting = databases.left(session, prepared[0])
        if waiting < sizes.held_jobs / 2:
            fill(*prepared, name, sizes.held_jobs, waiting=waiting)
        figures.append(
            drain(*prepared, name, processes=1, handler="noop", seconds=sizes.drain_seconds)
        )
    return figures
