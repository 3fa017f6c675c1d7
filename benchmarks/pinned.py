"""An old snapshot held by another session keeps dead rows in place: who wades through them?"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.contenders import LOOP, WORKER, Run, run
from benchmarks.database import bare_connection, query, store_messages
from benchmarks.loops import make_tables
from benchmarks.report import Table, percentiles, spread, tell, tenths


@contextmanager
def held_snapshot() -> Iterator[None]:
    """Nothing that is deleted inside can be vacuumed."""
    with bare_connection() as holder:
        holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT pg_current_snapshot()")
        yield
        holder.execute("COMMIT")


def pinned(jobs: int, designs: Sequence[str], *, batch: int, as_json: bool) -> None:
    """One process each, without and with a snapshot held."""
    make_tables()
    store_messages(jobs)
    table: Table = []
    figures = {}
    for name in (*designs, LOOP, WORKER):
        table.append(_row(name, "free", run(name, jobs, 1, batch), jobs))
        with held_snapshot():
            done = run(name, jobs, 1, batch)
        table.append(_row(name, "pinned", done, jobs))
        print(f"{name}: {done.jobs_per_second:,.0f} jobs/s pinned", file=sys.stderr)
        if name == LOOP:
            figures = _growth(done)
    tell({f"{jobs:,} jobs, one process": table}, figures, as_json=as_json)


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
    """How many times longer claims of the last tenth took."""
    (p50, p99), (late50, late99) = map(percentiles, tenths(done.claims))
    return {"claim_p50_growth": round(late50 / p50, 2), "claim_p99_growth": round(late99 / p99, 2)}


def _rates(jobs: int) -> tuple[float, float]:
    """Of the first and the last tenth to be settled, by the archive."""
    tenth = jobs // 10
    rows = query(
        f"SELECT {tenth} / extract(epoch FROM max(settled_at) - min(settled_at))::float8 FROM ("
        f" SELECT settled_at, (row_number() OVER (ORDER BY settled_at) - 1) / {tenth} AS tenth"
        " FROM pulljobs_archived_job) AS settled WHERE tenth IN (0, 9)"
        " GROUP BY tenth ORDER BY tenth"
    )
    first, last = (float(str(rate)) for (rate,) in rows)
    return first, last
