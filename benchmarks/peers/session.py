"""Run of the comparison: environments, rounds of all queues in turn, then held snapshots."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path

from benchmarks.database import machine, refuse_unsafe
from benchmarks.peers import databases, page
from benchmarks.peers.catalog import choose_peers
from benchmarks.peers.environments import prepare
from benchmarks.peers.latency import measure_latency
from benchmarks.peers.measures import FAILURES, Figures, Sizes, drain, fill, publish
from benchmarks.peers.peer import Peer
from benchmarks.peers.processes import order
from benchmarks.peers.record import Record
from benchmarks.peers.snapshot import AFTER, WHILE, Prepared, measure_held
from example_project.state import state_directory

Measure = tuple[str, Callable[[], Figures]]


def run(options: argparse.Namespace) -> None:
    """Measure the chosen queues, record the figures in a file, and write or print the page."""
    refuse_unsafe()
    path = options.json or state_directory() / "peers" / "record.json"
    record = Record(Path(path), resume=options.resume)
    sizes = _sizes(options)
    if options.rounds or not record.has_facts:
        record.about(
            machine=machine(),
            at=datetime.now(UTC).date().isoformat(),
            sizes=asdict(sizes) | {"rounds": options.rounds},
        )
    ready = prepare_peers(choose_peers(options.peers), record, sizes)
    for round in range(options.rounds):
        for prepared in ready:
            _round(prepared, record, sizes, options, round)
    _held(ready, record, sizes, max(1, options.rounds))
    for peer, _environment in ready:
        for suffix in ("empty", "filled"):
            databases.drop(databases.name_of(peer, suffix))
    folder = Path(options.output) if options.output else None
    page.write_page(record.content, folder, _sections(options))


def _sections(options: argparse.Namespace) -> list[str]:
    """Return the names of the sections of the page to write. Other sections stay as they are."""
    if not options.rounds:
        return [page.HELD]
    return [name for name in page.SECTIONS if name != page.HELD or options.held_seconds]


def _sizes(options: argparse.Namespace) -> Sizes:
    return Sizes(
        jobs=options.jobs,
        publish_seconds=options.publish_seconds,
        drain_seconds=options.drain_seconds,
        latency_seconds=options.latency_seconds,
        held_seconds=options.held_seconds,
        held_rate=options.held_rate,
        held_jobs=options.jobs // 2,
        held_together=options.held_together,
    )


def prepare_peers(peers: Sequence[Peer], record: Record, sizes: Sizes) -> list[Prepared]:
    """Return the compared queues that can run, and record the errors of the others."""
    ready = []
    for peer in peers:
        try:
            environment = prepare(peer)
            record.prepared(peer.name, environment.versions)
            _databases(peer, record, (peer, environment), sizes)
        except FAILURES as error:
            _log(f"{peer.name}: not run: {error}")
            record.failed(peer.name, str(error))
        else:
            ready.append((peer, environment))
    return ready


def _databases(peer: Peer, record: Record, prepared: Prepared, sizes: Sizes) -> None:
    """Create a database with a queue's tables and one with jobs, and record the WAL of the fill.

    Databases that exist are kept if the record, of a run that is resumed, has the fill already.
    """
    empty, filled = (databases.name_of(peer, suffix) for suffix in ("empty", "filled"))
    if not databases.exists(empty) or not record.rounds(peer.name, "fill"):
        databases.create(empty)
        order(*prepared, empty, "migrate")
    if not databases.exists(filled) or not record.rounds(peer.name, "fill"):
        databases.create(filled, empty)
        record.add(peer.name, "fill", fill(*prepared, filled, sizes.jobs))
        databases.settle(filled)
    _log(f"{peer.name}: prepared")


def _round(
    prepared: Prepared, record: Record, sizes: Sizes, options: argparse.Namespace, round: int
) -> None:
    name = prepared[0].name
    for measure, take in _measures(prepared, sizes, options):
        if record.hopeless(name, measure) or record.rounds(name, measure) > round:
            continue
        try:
            figures = take()
        except FAILURES as error:
            _log(f"round {round + 1}: {name}: {measure}: {error}")
            record.give_up(name, measure, str(error))
        else:
            record.add(name, measure, figures)
            _log(f"round {round + 1}: {name}: {measure}: {_brief(figures)}")


def _measures(prepared: Prepared, sizes: Sizes, options: argparse.Namespace) -> Iterator[Measure]:
    empty, filled = (databases.name_of(prepared[0], suffix) for suffix in ("empty", "filled"))
    for how in ("one", "many") if sizes.publish_seconds else ():
        yield f"publish {how}", partial(publish, *prepared, empty, how, sizes)
    for handler, processes in product(options.handlers, options.processes):
        name = f"{handler} x {processes}"
        yield name, partial(_drain, prepared, filled, sizes, handler, processes)
    seconds = sizes.latency_seconds
    for rate in options.rates if seconds else ():
        yield f"latency at {rate}", partial(measure_latency, *prepared, empty, rate, seconds)


def _drain(prepared: Prepared, filled: str, sizes: Sizes, handler: str, processes: int) -> Figures:
    with databases.copied(filled) as database:
        return drain(
            *prepared,
            database,
            processes=processes,
            handler=handler,
            seconds=sizes.drain_seconds,
        )


def _held(ready: Sequence[Prepared], record: Record, sizes: Sizes, rounds: int) -> None:
    if not sizes.held_seconds:
        return

    def note(peer: Peer, measure: str, figures: list[Figures] | str) -> None:
        if isinstance(figures, str):
            _log(f"snapshot held: {peer.name}: {figures}")
            record.give_up(peer.name, measure, figures)
            return
        for round in figures:
            _log(f"snapshot held: {peer.name}: {_brief(round)}")
        record.put(peer.name, measure, figures)

    missing = [
        (peer, environment)
        for peer, environment in ready
        if not (record.rounds(peer.name, WHILE) and record.rounds(peer.name, AFTER))
    ]
    for start in range(0, len(missing), sizes.held_together):
        group = missing[start : start + sizes.held_together]
        try:
            measure_held(group, sizes, rounds, note)
        except FAILURES as error:
            _blame_all([peer for peer, _environment in group], record, error)


def _blame_all(peers: Sequence[Peer], record: Record, error: Exception) -> None:
    text = f"{', '.join(peer.name for peer in peers)}, one of which failed: {error}"
    _log(f"snapshot held: {text}")
    for peer in peers:
        if not record.rounds(peer.name, WHILE):
            record.give_up(peer.name, WHILE, text)


def _brief(figures: Figures) -> str:
    return ", ".join(
        f"{name} {value:,.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in figures.items()
    )


def _log(text: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", file=sys.stderr, flush=True)
