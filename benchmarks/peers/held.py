"""Jobs a second after another session has held a snapshot for minutes, with jobs going through."""

import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

import psutil

from benchmarks.peers import databases
from benchmarks.peers.environments import Environment, NotRun
from benchmarks.peers.measures import Figures, Sizes, drain, fill
from benchmarks.peers.peer import Peer
from benchmarks.peers.processes import start_order, working

REST_SECONDS: Final = 20.0
SLACK: Final = 1.5
"""Who can't publish at the pace within so much more than its time is cut short."""
LOOK_SECONDS: Final = 0.1

Prepared = tuple[Peer, Environment]


def held(
    group: Sequence[Prepared],
    sizes: Sizes,
    rounds: int,
    note: Callable[[Peer, list[Figures] | str], None],
) -> None:
    """Hold snapshots for all of the group, then measure each while nobody else works.

    Every peer gets the same jobs at the same pace before, so that each has left as many dead rows.
    """
    with ExitStack() as stack:
        names = {}
        for peer, _environment in group:
            names[peer.name] = databases.name_of(peer, "held")
            databases.create(names[peer.name], databases.name_of(peer, "empty"))
            stack.callback(databases.drop, names[peer.name])
        for name in names.values():
            stack.enter_context(databases.held_snapshot(name))
        _churn(group, names, sizes)
        for peer, environment in group:
            note(peer, _rounds(peer, environment, names[peer.name], sizes, rounds))


def _churn(group: Sequence[Prepared], names: dict[str, str], sizes: Sizes) -> None:
    with ExitStack() as stack:
        paces = []
        for peer, environment in group:
            name = names[peer.name]
            stack.enter_context(working(peer, environment, name))
            words = ("pace", sizes.held_rate, sizes.held_seconds)
            paces.append(start_order(peer, environment, name, *words))
        deadline = time.monotonic() + sizes.held_seconds * SLACK
        for pace in paces:
            _end(pace, deadline)
        for peer, _environment in group:
            _await_rest(peer, names[peer.name])


def _end(pace: subprocess.Popen[bytes], deadline: float) -> None:
    try:
        pace.wait(max(deadline - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        # Those from npm run in a child of it.
        for child in psutil.Process(pace.pid).children(recursive=True):
            child.kill()
        pace.kill()
        pace.wait()


def _await_rest(peer: Peer, name: str) -> None:
    """What a worker still holds when it is killed would be stuck."""
    deadline = time.monotonic() + REST_SECONDS
    with databases.connect(name) as session:
        while databases.left(session, peer) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)


def _rounds(
    peer: Peer, environment: Environment, name: str, sizes: Sizes, rounds: int
) -> list[Figures] | str:
    figures = []
    try:
        for _round in range(rounds):
            with databases.connect(name) as session:
                waiting = databases.left(session, peer)
            if waiting < sizes.held_jobs / 2:
                fill(peer, environment, name, sizes.held_jobs, waiting=waiting)
            figures.append(
                drain(
                    peer, environment, name,
                    processes=1, handler="noop", seconds=sizes.drain_seconds,
                )
            )  # fmt: skip
    except (NotRun, RuntimeError, TimeoutError, psutil.Error) as error:
        return str(error)
    return figures
