"""Contents of the dashboard: all that its template shows, read by one request."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.utils.translation import gettext as _

from pulljobs.admin.dashboard import (
    attention,
    consumer_status,
    consumers,
    failures,
    history,
    ranges,
    sections,
    tiles,
    upkeep,
    workers,
)
from pulljobs.admin.dashboard.attention import Attention
from pulljobs.admin.dashboard.consumer_status import ConsumerStatus
from pulljobs.admin.dashboard.consumers import ConsumerRow
from pulljobs.admin.dashboard.drawn import ChartBook, DrawnChart
from pulljobs.admin.dashboard.failures import Failures
from pulljobs.admin.dashboard.history import History
from pulljobs.admin.dashboard.ranges import Range
from pulljobs.admin.dashboard.reading import PATIENCE, Part
from pulljobs.admin.dashboard.sections import Section
from pulljobs.admin.dashboard.tiles import Tile
from pulljobs.admin.dashboard.upkeep import Partitions, PinnedSnapshot, TableRow
from pulljobs.admin.dashboard.workers import Worker, WorkerCard
from pulljobs.admin.links import Links
from pulljobs.conf import settings
from pulljobs.engine.histograms import ERROR_PERCENT
from pulljobs.models import Consumer
from pulljobs.storage import nodes, settlement_history
from pulljobs.storage.reading import Reading, impatient
from pulljobs.storage.settlement_history import Pace


class TitledChart(NamedTuple):
    """Chart of the page with its title and legend."""

    name: str
    title: str
    legend: Sequence[tuple[str, str]]
    """Classes of the style sheet, each with the name of what it draws."""
    drawn: DrawnChart


@dataclass(frozen=True)
class Current:
    """State of jobs, workers and tables at the time of the request, in contrast to the history."""

    at: datetime
    workers: Sequence[Worker]
    statuses: Sequence[ConsumerStatus]
    tables: Sequence[TableRow]
    snapshots: Sequence[PinnedSnapshot]
    partitions: Partitions | None
    failures: Failures | None
    sections: Sequence[Section]
    """Sections of limits and of other apps."""


@dataclass(frozen=True)
class Contents:
    """Everything that the template of the dashboard shows."""

    now: Current
    history: History
    pace: Pace
    range: Range
    consumer: Consumer | None
    """Consumer whose history is drawn, or None for all consumers."""
    links: Links
    missed: Sequence[Part]
    """Tables and figures of the page that a time limit or an error kept from being read."""
    error: str
    """Advice about the first error of a query that no time limit caused, or empty."""

    @property
    def read_at(self) -> datetime:
        """Time by the database's clock at which the page was read."""
        return self.now.at

    @property
    def error_percent(self) -> float:
        """Largest error of the percentiles of wait and run times, in per cent."""
        return ERROR_PERCENT

    @property
    def ranges(self) -> list[Range]:
        """Time ranges of the charts that the user can choose."""
        return list(ranges.by_name().values())

    @property
    def consumers(self) -> list[Consumer]:
        """Consumers that the user can choose for the charts."""
        return [row.consumer for row in self.now.statuses]

    @property
    def findings(self) -> list[Attention]:
        """Problems that need attention, those that block jobs or maintenance first."""
        now = self.now
        findings = [
            *attention.check_consumers(now.statuses),
            *attention.check_workers(now.workers),
            *attention.check_snapshots(now.snapshots),
            *attention.check_tables(now.tables),
            *(finding for section in now.sections for finding in section.findings),
        ]
        if now.partitions is not None:
            findings += attention.check_partitions(now.partitions)
        return attention.rank(findings)

    @property
    def shown_findings(self) -> list[Attention]:
        """First findings, which are those that the page lists."""
        return self.findings[: attention.SHOWN]

    @property
    def more_findings(self) -> int:
        """Number of findings that the page does not list."""
        return max(0, len(self.findings) - attention.SHOWN)

    @property
    def headline(self) -> str:
        """Headline of the findings, without figures that change with every refresh.

        Screen readers announce it whenever it changes.
        """
        return attention.headline(self.findings, is_whole=not self.missed)

    @property
    def tiles(self) -> list[Tile]:
        """Tiles at the top of the page. If its rows could not be read, a tile has no figure."""
        known = None if Part.WORKERS in self.missed else self.now.workers
        made = [
            *tiles.backlog_tiles(self.now.statuses, known, self.links),
            tiles.throughput_tile(self.pace, self.consumer),
            tiles.failed_tile(self.history, self.range),
        ]
        return [tile.as_unknown() if tile.part in self.missed else tile for tile in made]

    @property
    def missed_names(self) -> str:
        """Names of the parts that could not be read, such as "workers, dead jobs"."""
        return ", ".join(str(part.label) for part in self.missed)

    @property
    def coverage(self) -> list[str]:
        """Sentences below the charts that say what they cover, and which figures are estimates."""
        if Part.HISTORY in self.missed:
            return [_("The history was not read in time.")]
        return list(self.range.source.describe(self.history, self.range))

    @property
    def charts(self) -> list[TitledChart]:
        """Charts of the chosen range: settlements, failures, wait times and run times."""
        quantiles = [("line p50", "p50"), ("line p95", "p95"), ("line p99", "p99")]
        waits = _("Wait until claimed, ± %s %%") % ERROR_PERCENT
        runs = _("Run time, ± %s %%") % ERROR_PERCENT
        dead = ("dead", _("dead"))
        book = ChartBook(self.history, self.range)
        return [
            TitledChart(
                "throughput",
                _("Settled by %s") % self.range.step_title,
                [("delivered", _("delivered")), dead],
                book.draw_settled(),
            ),
            TitledChart(
                "failures-chart",
                _("Failures and retries by %s") % self.range.step_title,
                [dead, ("retry", _("retries"))],
                book.draw_failures(),
            ),
            TitledChart("waits", waits, quantiles, book.draw_times("waits", waits)),
            TitledChart("runs", runs, quantiles, book.draw_times("runs", runs)),
        ]

    @property
    def rows(self) -> list[ConsumerRow]:
        """Rows of the table of consumers, the first SHOWN by name."""
        shown = self.now.statuses[: consumer_status.SHOWN]
        return consumers.make_rows(shown, self.history, self.pace, self.links)

    @property
    def cards(self) -> list[WorkerCard]:
        """Cards of the workers that the page shows: those that started last."""
        return [WorkerCard(worker, self.links) for worker in self.now.workers[: workers.SHOWN]]

    @property
    def more_workers(self) -> bool:
        """True if there are more workers than the page shows."""
        return len(self.now.workers) > workers.SHOWN

    @property
    def more_consumers(self) -> int:
        """Number of consumers that the table does not show."""
        return max(0, len(self.now.statuses) - consumer_status.SHOWN)


def read_contents(chosen: Range, consumer: str | None, links: Links) -> Contents:
    """Read the rows for all sections of the page, each statement within a time limit.

    `chosen` is the range of the charts, and `consumer` the primary key, as text, of the consumer
    whose history they draw. Any other text stands for all consumers.
    """
    with impatient(settings().DATABASE, PATIENCE) as reading:
        now = _now(reading, links)
        known = [row.consumer for row in now.statuses]
        selected = next((row for row in known if str(row.pk) == consumer), None)
        pk = None if selected is None else selected.pk
        shown = [row.consumer.pk for row in now.statuses[: consumer_status.SHOWN]]
        past = history.make_empty(chosen.slices(now.at), chosen.step)
        return Contents(
            now=now,
            pace=reading.part(Part.THROUGHPUT, lambda: _read_pace(now.at), Pace(1.0, {})),
            history=reading.part(
                Part.HISTORY, lambda: chosen.source.read_history(chosen, now.at, pk, shown), past
            ),
            range=chosen,
            consumer=selected,
            links=links,
            missed=[Part(name) for name in reading.missed],
            error=reading.error,
        )


def _read_pace(now: datetime) -> Pace:
    return settlement_history.read_pace(settings().DATABASE, now)


def _now(reading: Reading, links: Links) -> Current:
    at = nodes.clock(settings().DATABASE)
    known: list[Worker] | None = reading.part(Part.WORKERS, lambda: workers.read_workers(at), None)
    none: list[ConsumerStatus] = []
    statuses = reading.part(Part.CONSUMERS, lambda: consumer_status.read_statuses(at, known), none)
    return Current(
        at=at,
        workers=known or [],
        statuses=statuses,
        failures=reading.part(Part.DEAD, lambda: failures.read_failures(statuses, links), None),
        tables=reading.part(Part.TABLES, lambda: upkeep.read_tables(at), []),
        snapshots=reading.part(Part.SNAPSHOTS, upkeep.read_snapshots, []),
        partitions=reading.part(Part.PARTITIONS, lambda: upkeep.read_partitions(at), None),
        sections=list(sections.read_sections(reading, at, links)),
    )
