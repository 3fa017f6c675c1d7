"""Prototypes of flow control in raw SQL, compared with the plain claim (`decisions/flow`)."""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import product
from statistics import median
from typing import Final

from benchmarks.contenders import run_in_processes
from benchmarks.database import own_database, query, store_messages
from benchmarks.flow_loops import (
    FOLDER,
    LONG_AGO,
    BucketLoop,
    Drain,
    FlowLoop,
    Limits,
    RingLoop,
    SkipLoop,
    SlotsLoop,
    drain_flow,
    made,
    measure_empty,
    queue_flow,
)
from benchmarks.loops import read_statement
from benchmarks.report import Table, percentiles, print_report, print_table

PLAIN: Final = "plain claim"
PER_KEY: Final = Limits(per_key=4)
DESIGNS: Final[dict[str, Callable[[], FlowLoop]]] = {
    PLAIN: FlowLoop,
    "rate: bucket of the consumer": BucketLoop,
    "rate by key: ring": RingLoop,
    "rate by key: slots": SlotsLoop,
    "4 per key, fair: ring": partial(RingLoop, PER_KEY),
    "4 per key, fair: skip scan": partial(SkipLoop, PER_KEY),
}
WITHOUT_KEYS: Final = (PLAIN, "rate: bucket of the consumer")
AN_HOUR: Final = 1 / 3600
"""Tokens a second of a rate that gives nothing during the run but its burst."""
CHECKED_KEYS: Final = 5
CHECKED: Final = Limits(per_key=2)
"""Bound on the jobs of a key, less than the processes, so that together they reach it."""
CHECKED_PROCESSES: Final = 4
CHECKED_JOBS: Final = 10_000
CHECKED_SECONDS: Final = 30
FRESH_KEYS: Final = 100
FEW: Final = 10
"""Jobs that a claim asks for while a fresh key waits, except in the plain design."""
SHARE_CLAIMS: Final = 400
MOST_AT_ONCE: Final = (
    "SELECT coalesce(max(running), 0), count(*) FILTER (WHERE change = 1) FROM ("
    "SELECT change, sum(change) OVER (PARTITION BY key ORDER BY at, change) AS running FROM ("
    "SELECT error AS key, claimed_at AS at, 1 AS change FROM pulljobs_archived_job"
    " UNION ALL SELECT error, settled_at, -1 FROM pulljobs_archived_job) AS changes) AS sums"
)


def run(options: argparse.Namespace) -> None:
    """Run all measurements of the prototypes, and print a table of each."""
    with own_database():
        query(read_statement(FOLDER, "schema"))
        store_messages(options.jobs)
        tables: dict[str, Table] = {}
        for title, measure in PARTS.items():
            tables[title] = measure(options)
            print_table(title, tables[title], sys.stderr)
        print_report(tables, {}, as_json=options.json)


def _costs(options: argparse.Namespace) -> Table:
    runs: dict[tuple[str, int], list[Drain]] = {
        (name, keys): [] for name, keys in product(DESIGNS, options.keys)
    }
    for round in range(options.rounds):
        for (name, keys), done in runs.items():
            done.append(_drain(name, keys, options.wanted))
            note(f"round {round + 1}: {name}, {keys} keys: {_rate(done[-1]):,.0f} jobs/s")
    plain = {keys: median(map(_rate, runs[PLAIN, keys])) for keys in options.keys}
    return [
        {
            "design": name,
            "keys": keys,
            "jobs/s": median(map(_rate, done)),
            "of plain": median(map(_rate, done)) / plain[keys],
            "CPU us a job": median(drain.cpu_seconds / max(1, drain.jobs) for drain in done) * 1e6,
            "claims/s": median(map(_claim_rate, done)),
            "jobs a claim": done[0].jobs / max(1, len(done[0].claim_seconds)),
            "pages a claim": int(median(page for drain in done for page in drain.pages)),
            "pages a job": _pages_a_job(done),
        }
        for (name, keys), done in runs.items()
    ]


def _drain(name: str, keys: int, wanted: int) -> Drain:
    queue_flow(0 if name in WITHOUT_KEYS else keys)
    with made(DESIGNS[name]) as loop:
        return drain_flow(loop, wanted)


def _rate(drain: Drain) -> float:
    return drain.jobs / drain.seconds if drain.seconds else 0.0


def _claim_rate(drain: Drain) -> float:
    return len(drain.claim_seconds) / sum(drain.claim_seconds) if drain.claim_seconds else 0.0


def _pages_a_job(done: list[Drain]) -> float:
    pages = median(page for drain in done for page in drain.pages)
    return pages * len(done[0].claim_seconds) / max(1, done[0].jobs)


def _binding(options: argparse.Namespace) -> Table:
    table: Table = []
    few_keys = [keys for keys in options.keys if keys * 10 <= options.jobs]
    for name, keys in product(("ring", "slots"), few_keys):
        allowed = options.jobs // keys // 10
        limits = Limits(burst=allowed, per_second=AN_HOUR)
        queue_flow(keys)
        with made(partial(RingLoop if name == "ring" else SlotsLoop, limits)) as loop:
            start = time.perf_counter()
            drain = drain_flow(loop, options.wanted)
            seconds = time.perf_counter() - start
        note(f"{name}, {keys} keys: {drain.jobs} allowed jobs in {seconds:.2f} s")
        table.append(
            {
                "design": name,
                "keys": keys,
                "allowed jobs": drain.jobs,
                "seconds": seconds,
                "pages of a claim that gets nothing": drain.empty_pages,
                "its ms": drain.empty_seconds * 1000,
            }
        )
    return table


def _busy(options: argparse.Namespace) -> Table:
    """Measure a claim that gets nothing because every key has as many jobs in flight as it may."""
    table: Table = []
    for name, keys in product(("ring", "skip scan"), options.keys):
        queue_flow(min(keys, options.jobs // 2))
        limits = Limits(per_key=1)
        with made(partial(RingLoop if name == "ring" else SkipLoop, limits)) as loop:
            held = 0
            while True:
                claimed = loop.claim(options.wanted)
                if claimed is None and not (
                    isinstance(loop, RingLoop) and loop.has_more_to_discover
                ):
                    break
                held += len(claimed.ids) if claimed else 0
            pages, seconds = measure_empty(loop, options.wanted)
        note(f"{name}, {held} busy keys: {pages} pages")
        table.append({"design": name, "busy keys": held, "pages": pages, "ms": seconds * 1000})
    return table


def _fresh(options: argparse.Namespace) -> Table:
    table: Table = []
    for name, loop_of in (("ring", RingLoop), ("skip scan", SkipLoop), (PLAIN, FlowLoop)):
        queue_flow(1)
        with made(loop_of) as loop:
            start = time.perf_counter()
            if isinstance(loop, RingLoop):
                while loop.has_more_to_discover:
                    loop.discover()
            discovered = time.perf_counter() - start
            few = FRESH_KEYS if name != PLAIN else 1
            wanted = FEW if name != PLAIN else options.wanted
            waits = [_wait_of_fresh(loop, number, wanted) for number in range(few)]
        p50, p99 = percentiles(waits)
        note(f"{name}: a fresh key waits {p50:.1f} / {p99:.1f} ms")
        table.append(
            {
                "design": name,
                "backlog": options.jobs,
                "seconds to learn its keys": discovered,
                "wait p50 ms": p50,
                "p99 ms": p99,
            }
        )
    return table


def _wait_of_fresh(loop: FlowLoop, number: int, wanted: int) -> float:
    [row] = loop.run("single_job", key=f"fresh {number}")
    start = time.perf_counter()
    while claimed := loop.claim(wanted):
        took = time.perf_counter() - start
        loop.finish(claimed)
        if row.id in claimed.ids:
            return took
    raise SystemExit("The queue is empty, and the job of the fresh key was never claimed.")


def _shares(options: argparse.Namespace) -> Table:
    table: Table = []
    for wanted in (1, 10, 100):
        queue_flow(2)
        with made(RingLoop) as loop:
            assert isinstance(loop, RingLoop)
            loop.discover()
            query("UPDATE raw_flow_key SET weight = 3 WHERE key = 'key 1'")
            counts: Counter[str] = Counter()
            claims = min(SHARE_CLAIMS, options.jobs // 3 // wanted)
            for _ in range(claims):
                claimed = loop.claim(wanted)
                if claimed is not None:
                    counts.update(loop.keys[id] for id in claimed.ids)
                    loop.finish(claimed)
        table.append(
            {
                "jobs a claim": wanted,
                "claims": claims,
                "weight 3": counts["key 1"],
                "weight 1": counts["key 0"],
                "ratio": counts["key 1"] / max(1, counts["key 0"]),
            }
        )
    return table


def _bounds(options: argparse.Namespace) -> Table:
    """Claim in several processes. Return the most jobs of a key that were in flight at once."""
    store_messages(min(options.jobs, CHECKED_JOBS))
    table: Table = []
    for is_proved in (True, False) if options.planted else (True,):
        queue_flow(CHECKED_KEYS)
        work = partial(_drain_all, is_proved=is_proved)
        start = time.perf_counter()
        run_in_processes([work] * CHECKED_PROCESSES)
        seconds = time.perf_counter() - start
        [(most, jobs)] = query(MOST_AT_ONCE)
        table.append(
            {
                "claims use": "the version of their snapshot" if is_proved else "any version",
                "jobs": jobs,
                "jobs/s": int(str(jobs)) / seconds,
                "most of a key in flight": most,
            }
        )
        note(f"{is_proved}: {most} of a key in flight")
    return table


def _drain_all(*, is_proved: bool) -> None:
    loop = RingLoop(CHECKED, is_proved=is_proved)
    end = time.monotonic() + CHECKED_SECONDS  # without the proof a key may be lost
    while time.monotonic() < end:
        loop.turn_mark = LONG_AGO  # a single process may skip turns that it took itself
        claimed = loop.claim(5)
        if claimed is not None:
            time.sleep(0.001)  # so that claims overlap
            loop.finish(claimed)
        elif not loop.connection.execute("SELECT FROM raw_flow_job LIMIT 1").fetchall():
            return
        else:
            time.sleep(0.001)


def note(text: str) -> None:
    """Print progress to stderr."""
    print(text, file=sys.stderr)


PARTS: Final[dict[str, Callable[[argparse.Namespace], Table]]] = {
    "Limits that hold nothing back": _costs,
    "A rate that allows a tenth, and claims after that": _binding,
    "All keys are busy": _busy,
    "A fresh key behind a backlog": _fresh,
    "Shares of keys with weights 1 and 3": _shares,
    f"{CHECKED_PROCESSES} processes, 2 per key": _bounds,  # the last: it stores other messages
}
