"""Drains while another session holds a snapshot, so that dead rows cannot be vacuumed."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.contenders import LOOP, WORKER, Run, run_contender
from benchmarks.database import bare_connection, query, store_messages
from benchmarks.loops import make_tables
from benchmarks.report import Table, percentiles, print_report, spread, tenths


@contextmanager
def held_snapshot() -> Iterator[None]:
    """Hold a snapshot in another session: rows deleted inside the block cannot be vacuumed."""
    with bare_connection() as holder:
        holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT pg_current_snapshot()")
        yield
        holder.execute("COMMIT")


def measure_pinned(jobs: int, designs: Sequence[str], *, batch: int, as_json: bool) -> None:
    """Measure one process of each contender, without and with a snapshot held."""
    make_tables()
    store_messages(jobs)
    table: Table = []
    figures = {}
    for name in (*designs, LOOP, WORKER):
        table.append(_row(name, "free", run_contender(name, jobs, 1, batch), jobs))
        with held_snapshot():
            done = run_contender(name, jobs, 1, batch)
        table.append(_row(name, "pinned", done, jobs))
        print(f"{name}: {done.jobs_per_second:,.0f} jobs/s pinned", file=sys.stderr)
        if name == LOOP:
            figures = _growth(done)
    print_report({f"{jobs:,} jobs, one process": table}, figures, as_json=as_json)


def _row(name: str, snapshot: str, done: Run, jobs: int) -> dict[str, object]:
    first, last = tenths(done.claims)
    start, end = _rates(jobs)
    return {
        "contender": name,
        "snapshot": snapshot,
        "jobs/s": done.jobs_per_second,
        "jobs/s first tenth": start,
        "jobs/s last tenth": end,
        "claim p50 / p99 ms, first tenth": spread(first),
        "claim p50 / p99 ms, last tenth": spread(last),
    }


def _growth(done: Run) -> dict[str, float]:
    """Return how many times longer claims of the last tenth took than those of the first."""
    (p50, p99), (late50, late99) = map(percentiles, tenths(done.claims))
    return {"claim_p50_growth": round(late50 / p50, 2), "claim_p99_growth": round(late99 / p99, 2)}


def _rates(jobs: int) -> tuple[float, float]:
    """Return the jobs a second of the first and last tenth of the settlements in the archive."""
    tenth = jobs // 10
    rows = query(
        f"SELECT {tenth} / extract(epoch FROM max(settled_at) - min(settled_at))::float8 FROM ("
        f" SELECT settled_at, (row_number() OVER (ORDER BY settled_at) - 1) / {tenth} AS tenth"
        " FROM pulljobs_archived_job) AS settled WHERE tenth IN (0, 9)"
        " GROUP BY tenth ORDER BY tenth"
    )
    first, last = (float(str(rate)) for (rate,) in rows)
    return first, last
