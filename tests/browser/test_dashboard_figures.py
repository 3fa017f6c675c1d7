"""Figures of the dashboard are those of SQL over the archive, after four kinds of work.

Counts are equal. Times are within the error that the page states, plus rounding.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import pytest
from playwright.sync_api import Page

from pulljobs import ids
from pulljobs.engine.histograms import ERROR_PERCENT
from tests.browser.pages import Visitor
from tests.demo.running import Project, wait_until

DASHBOARD: Final = "pulljobs/dashboard/"
NAME: Final = "measured"
CONSUMER: Final = 900_000
STEPS: Final = {
    "hour": (60, timedelta(minutes=1), "YYYY-MM-DD HH24:MI"),
    "day": (24, timedelta(hours=1), "YYYY-MM-DD HH24:MI"),
    "week": (168, timedelta(hours=1), "YYYY-MM-DD HH24:MI"),
    "month": (30, timedelta(days=1), "YYYY-MM-DD"),
}
"""Number of time steps, their length and label in the tables, by the name of the range."""
UNITS: Final = {"ms": 0.001, "s": 1, "min": 60, "h": 3600, "d": 86_400}
ROUNDING: Final = ((84_600, 1800.0), (3520, 30.0), (59, 0.5))
"""Rounding errors of shown times, as pairs of least seconds and error: half of a shown unit."""
SMALLEST: Final = 1e-5
"""Seconds below which the page shows zero."""
SETTLE: Final = f"""
INSERT INTO pulljobs_archived_job (
    id, job_id, message_id, consumer_id, created_at, claimed_at, started_at, settled_at,
    run_seconds, retry_count, deliveries, state, reason
)
SELECT
    (((extract(epoch FROM at) * 1000)::bigint - {ids.EPOCH_MILLISECONDS}) << 22) | n, n, n, %s,
    at - interval '1 s' * (2 + n %% 97) - interval '1 h' * (n %% 11 = 0)::int,
    at - interval '2 s', at - interval '1.5 s', at,
    CASE WHEN n %% 4 > 0 THEN exp((n %% 101) / 20.0 - 4) END,
    (n %% 11 = 0)::int, 1 + (n %% 11 = 0)::int,
    CASE WHEN n > %s THEN 'DEAD' ELSE 'DELIVERED' END,
    CASE WHEN n > %s THEN 'rejected' END
FROM generate_series(1, %s) AS n
CROSS JOIN LATERAL (
    SELECT clock_timestamp() - %s - %s::interval * (1 - n::float8 / %s) AS at
) AS settled
RETURNING 1
"""
"""Statement that inserts settlements at even intervals. Figures leave out waits of retried jobs."""
WAIT: Final = """CASE
    WHEN deliveries = 1
        AND retry_count = 0
        AND NOT EXISTS (
            SELECT
            FROM pulljobs_archived_job AS death
            WHERE death.job_id = settled.job_id AND death.id < settled.id AND death.state = 'DEAD'
        )
        THEN greatest(0, date_part('epoch', claimed_at - created_at))
END"""
FIGURES: Final = f"""
SELECT
    {{label}},
    count(*) FILTER (WHERE state = 'DELIVERED'),
    count(*) FILTER (WHERE state = 'DEAD'),
    sum(retry_count)::int,
    percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY {WAIT}),
    percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY run_seconds)
FROM pulljobs_archived_job AS settled
WHERE settled_at >= %s AND settled_at <= %s AND consumer_id = coalesce(%s::bigint, consumer_id)
GROUP BY 1
"""
LAST_MINUTE: Final = """
SELECT count(*) FROM pulljobs_archived_job
WHERE settled_at >= %s AND consumer_id = coalesce(%s::bigint, consumer_id)
"""
STAMP: Final = "SELECT count(*), max(id) FROM pulljobs_archived_job"
RECOUNT: Final = "UPDATE pulljobs_count_progress SET snapshot = NULL"


class Work(NamedTuple):
    """Settlements to insert. The first `delivered` jobs are delivered, and the others are dead."""

    settled: int
    delivered: int
    length: timedelta
    ago: timedelta = timedelta(0)

    @property
    def is_recent(self) -> bool:
        """True if all settlements are so recent that a worker may not have counted them yet."""
        return self.length + self.ago <= timedelta(seconds=10)


class Figures(NamedTuple):
    """Counts and times of a chart's column, a consumer or a range: p50, p95, p99 in seconds."""

    delivered: int
    dead: int
    retries: int
    waits: Sequence[float] | None
    runs: Sequence[float] | None


WORK: Final = {
    "few jobs": Work(7, 6, timedelta(seconds=5)),
    "a burst with deaths at its end": Work(9_000, 8_977, timedelta(seconds=10)),
    "a week in fast motion": Work(40_000, 39_000, timedelta(days=7)),
    "an idle hour": Work(300, 290, timedelta(minutes=30), ago=timedelta(minutes=65)),
}
COLUMNS: Final = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = current_schema() AND table_name = 'pulljobs_consumer'
    AND is_generated = 'NEVER'
"""
NOTHING: Final = Figures(0, 0, 0, None, None)


@pytest.fixture
def project(visitor: Visitor) -> Iterator[Project]:
    """Add to the demo a consumer that no worker serves. Yield the demo's project."""
    project = visitor.site.project
    columns = ", ".join(row[0] for row in project.query(COLUMNS))
    project.query(
        f"INSERT INTO pulljobs_consumer ({columns}) SELECT {columns} FROM"
        " (SELECT (jsonb_populate_record(known,"
        " jsonb_build_object('id', %s::bigint, 'name', %s::text))).*"
        " FROM pulljobs_consumer AS known ORDER BY id LIMIT 1) AS other RETURNING id",
        CONSUMER,
        NAME,
    )
    yield project
    project.change(
        f"DELETE FROM pulljobs_archived_job WHERE consumer_id = {CONSUMER}",
        f"DELETE FROM pulljobs_consumer WHERE id = {CONSUMER}",
        RECOUNT,  # It waits for a count that runs.
        "DELETE FROM pulljobs_settlement_count",
    )


@pytest.mark.parametrize("name", WORK)
def test_every_figure_is_that_of_sql_over_the_archive(
    visitor: Visitor, project: Project, name: str
) -> None:
    """Figures are right after a worker counted the settlements, and for recent ones also before."""
    work = WORK[name]
    many = work.settled
    dead_after = (work.delivered, work.delivered)
    project.query(SETTLE, CONSUMER, *dead_after, many, work.ago, work.length, many)
    page = visitor.page(java_script_enabled=False)  # so that it does not refresh itself
    address = visitor.site.address + DASHBOARD
    if work.is_recent:
        _compare_pages(page, project, address, ["hour"])
    project.change(RECOUNT)
    wait_until(lambda: project.number("SELECT count(snapshot) FROM pulljobs_count_progress") == 1)
    _compare_pages(page, project, address, STEPS)


def _compare_pages(page: Page, project: Project, address: str, names: Iterable[str]) -> None:
    for chosen in names:
        for consumer_id in (None, CONSUMER):
            _open(page, project, f"{address}?range={chosen}&consumer={consumer_id or ''}")
            _compare(page, project, chosen, consumer_id)


def _open(page: Page, project: Project, url: str) -> None:
    """Open the page until it has all its parts and no job was settled while it was read."""

    def is_read() -> bool:
        before = project.query(STAMP)
        page.goto(url)
        is_complete = "did not answer" not in page.locator("#pj-attention").inner_text()
        return is_complete and project.query(STAMP) == before

    wait_until(is_read)


def _compare(page: Page, project: Project, chosen: str, consumer_id: int | None) -> None:
    steps, step, form = STEPS[chosen]
    moment = page.locator("#pj-moment time").get_attribute("datetime")
    read_at = datetime.fromisoformat(moment or "")
    first = read_at - (read_at - datetime(1970, 1, 1, tzinfo=UTC)) % step - (steps - 1) * step

    def read_figures(consumer_id: int | None, label: str = "'all'") -> dict[str, Figures]:
        rows = project.query(FIGURES.replace("{label}", label), first, read_at, consumer_id)
        return {row[0]: Figures(*row[1:]) for row in rows}

    start = f"date_bin('{step.total_seconds()} s', settled_at, timestamptz 'epoch')"
    by_step = read_figures(consumer_id, f"to_char({start} AT TIME ZONE 'UTC', '{form}')")
    counts = {name: (row.delivered, row.dead, row.retries) for name, row in by_step.items()}
    assert _shown_counts(page, "throughput") == counts
    assert _shown_counts(page, "failures-chart") == counts
    _compare_times(page, "waits", {name: row.waits for name, row in by_step.items()})
    _compare_times(page, "runs", {name: row.runs for name, row in by_step.items()})
    _compare_failed(page, read_figures(consumer_id).get("all", NOTHING))
    minute = project.number(LAST_MINUTE, read_at - timedelta(minutes=1), consumer_id)
    assert _tile(page, "Throughput").startswith(f"{minute:,} / min")
    dead = project.number("SELECT count(*) FROM pulljobs_job WHERE state = 'DEAD'")
    assert _tile(page, "Dead").startswith(f"{dead:,} ")
    _compare_row(page, read_figures(CONSUMER).get("all", NOTHING))


def _shown_counts(page: Page, chart: str) -> dict[str, tuple[int, ...]]:
    rows = _read_rows(page, f"#pj-{chart}-table")
    return {name: tuple(int(text.replace(",", "")) for text in counts) for name, *counts in rows}


def _read_rows(page: Page, selector: str) -> list[list[str]]:
    """Return the text of each cell in the body of a table, row by row."""
    rows: list[list[str]] = page.evaluate(
        """selector => Array.from(document.querySelectorAll(`${selector} tbody tr`)).map(
            row => Array.from(row.cells).map(cell => cell.textContent.trim()))""",
        selector,
    )
    return rows


def _compare_times(page: Page, chart: str, exact: dict[str, Sequence[float] | None]) -> None:
    shown = {name: times for name, *times in _read_rows(page, f"#pj-{chart}-table")}
    known = {name: times for name, times in exact.items() if times}
    assert set(shown) == set(known), chart
    for name, times in known.items():
        _assert_close(shown[name], times)


def _assert_close(shown: Sequence[str], exact: Sequence[float] | None) -> None:
    if not exact:
        assert list(shown) == ["–"] * 3
        return
    for text, seconds in zip(shown, exact, strict=True):
        # Three digits are off by half a per cent at most.
        half = next((half for least, half in ROUNDING if seconds >= least), 0.005 * seconds)
        bound = ERROR_PERCENT / 100 * seconds + half + SMALLEST
        assert abs(_seconds(text) - seconds) <= bound, (shown, exact)


def _seconds(text: str) -> float:
    """Return the seconds of "1 min 20 s"."""
    parts = re.findall(r"([\d.e+-]+) (ms|s|min|h|d)\b", text)
    assert parts, text
    return sum(float(number) * UNITS[unit] for number, unit in parts)


def _compare_failed(page: Page, total: Figures) -> None:
    failed, settled = _tile(page, "Failed"), total.delivered + total.dead
    assert f"{total.dead:,} of {settled:,} settled in" in failed
    if total.dead:
        share = float(failed.split(" ")[0])
        assert share == pytest.approx(100 * total.dead / settled, rel=0.005)  # three digits


def _tile(page: Page, title: str) -> str:
    tile = page.locator("#pj-tiles .pj-tile").filter(has=page.get_by_text(title, exact=True))
    return " ".join(tile.locator("dd").inner_text().split())


def _compare_row(page: Page, total: Figures) -> None:
    """Compare the consumer's row of the page with figures that were computed by SQL."""
    rows = _read_rows(page, "#settled")
    [(settled, dead, retries, *times)] = [row for name, *row in rows if name.endswith(f"/ {NAME}")]
    assert settled == f"{total.delivered + total.dead:,}"
    assert dead.split(" ")[0] == f"{total.dead:,}"
    assert retries == f"{total.retries:,}"
    _assert_close(times[:3], total.waits)
    _assert_close(times[3:], total.runs)
