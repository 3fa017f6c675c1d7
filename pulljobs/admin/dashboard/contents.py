"""All that the page shows, read at one go."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from django.utils.translation import gettext as _

from pulljobs.admin.dashboard import (
    attention,
    consumers,
    drawn,
    failures,
    history,
    ranges,
    tiles,
    upkeep,
    workers,
)
from pulljobs.admin.dashboard.attention import Finding
from pulljobs.admin.dashboard.consumers import Row, Standing
from pulljobs.admin.dashboard.drawn import Drawn
from pulljobs.admin.dashboard.failures import Failures
from pulljobs.admin.dashboard.history import History
from pulljobs.admin.dashboard.links import Links
from pulljobs.admin.dashboard.ranges import Range
from pulljobs.admin.dashboard.reading import PATIENCE, Part
from pulljobs.admin.dashboard.tiles import Tile
from pulljobs.admin.dashboard.upkeep import Partitions, Snapshot, Table
from pulljobs.admin.dashboard.workers import Card, Worker
from pulljobs.conf import settings
from pulljobs.models import Consumer
from pulljobs.storage import nodes
from pulljobs.storage.reading import Reading, impatient

RATE_MINUTES: Final = 5


class Chart(NamedTuple):
    name: str
    title: str
    legend: Sequence[tuple[str, str]]
    """Classes, and what they stand for."""
    drawn: Drawn


@dataclass(frozen=True)
class Now:
    """How things stand."""

    at: datetime
    workers: Sequence[Worker]
    standings: Sequence[Standing]
    tables: Sequence[Table]
    snapshots: Sequence[Snapshot]
    partitions: Partitions | None
    failures: Failures | None


@dataclass(frozen=True)
class Contents:
    now: Now
    history: History
    lately: History
    range: Range
    consumer: Consumer | None
    """Whose history is drawn; None: that of all."""
    links: Links
    missed: Sequence[Part]
    """Parts that were not read in time."""
    error: str
    """Why the database refused one of them; empty: it did not."""

    @property
    def moment(self) -> datetime:
        return self.now.at

    @property
    def ranges(self) -> list[Range]:
        return list(ranges.by_name().values())

    @property
    def consumers(self) -> list[Consumer]:
        return [one.consumer for one in self.now.standings]

    @property
    def findings(self) -> list[Finding]:
        now = self.now
        found = [
            *attention.of_consumers(now.standings),
            *attention.of_workers(now.workers),
            *attention.of_snapshots(now.snapshots),
            *attention.of_tables(now.tables),
        ]
        if now.partitions is not None:
            found += attention.of_partitions(now.partitions)
        return attention.ranked(found)

    @property
    def shown_findings(self) -> list[Finding]:
        return self.findings[: attention.SHOWN]

    @property
    def more_findings(self) -> int:
        return max(0, len(self.findings) - attention.SHOWN)

    @property
    def headline(self) -> str:
        """What is read out when it changes, so it has no figures that change all the time."""
        return attention.headline(self.findings, is_whole=not self.missed)

    @property
    def tiles(self) -> list[Tile]:
        """Those of which all was read."""
        known = None if Part.WORKERS in self.missed else self.now.workers
        told = [
            *tiles.now(self.now.standings, known, self.links),
            tiles.throughput(self.lately),
            tiles.failed(self.history, self.range),
        ]
        return [tile.untold() if tile.part in self.missed else tile for tile in told]

    @property
    def missed_names(self) -> str:
        return ", ".join(str(part.label) for part in self.missed)

    @property
    def coverage(self) -> list[str]:
        if Part.HISTORY in self.missed:
            return [_("The database did not tell in time.")]
        return list(self.range.source.describe(self.history, self.range))

    @property
    def charts(self) -> list[Chart]:
        quantiles = [("line p50", "p50"), ("line p95", "p95"), ("line p99", "p99")]
        waits, runs = _("Wait until claimed"), _("Run time")
        dead = ("dead", _("dead"))
        return [
            Chart(
                "throughput",
                _("Settled by %s") % self.range.step_title,
                [("delivered", _("delivered")), dead],
                drawn.settled(self.history, self.range),
            ),
            Chart(
                "failures-chart",
                _("Failures and retries by %s") % self.range.step_title,
                [dead, ("retry", _("retries"))],
                drawn.failures(self.history, self.range),
            ),
            Chart("waits", waits, quantiles, drawn.times(self.history, self.range, "waits", waits)),
            Chart("runs", runs, quantiles, drawn.times(self.history, self.range, "runs", runs)),
        ]

    @property
    def rows(self) -> list[Row]:
        shown = self.now.standings[: consumers.SHOWN]
        return consumers.rows(shown, self.history, self.links)

    @property
    def cards(self) -> list[Card]:
        return [Card(worker, self.links) for worker in self.now.workers[: workers.SHOWN]]

    @property
    def more_workers(self) -> bool:
        return len(self.now.workers) > workers.SHOWN

    @property
    def more_consumers(self) -> int:
        return max(0, len(self.now.standings) - consumers.SHOWN)


def read(chosen: Range, consumer: str | None, links: Links) -> Contents:
    with impatient(settings().DATABASE, PATIENCE) as reading:
        now = _now(reading, links)
        of = next((one.consumer for one in now.standings if str(one.consumer.pk) == consumer), None)
        pk = None if of is None else of.pk
        shown = [one.consumer.pk for one in now.standings[: consumers.SHOWN]]
        minutes = ranges.DEFAULT.slices(now.at)[-1 - RATE_MINUTES : -1]
        step = ranges.DEFAULT.step
        lately = history.empty(minutes, step)
        past = history.empty(chosen.slices(now.at), chosen.step)
        return Contents(
            now=now,
            lately=reading.part(
                Part.THROUGHPUT, lambda: history.of_archive(minutes, step, pk), lately
            ),
            history=reading.part(
                Part.HISTORY, lambda: chosen.source.read(chosen, now.at, pk, shown), past
            ),
            range=chosen,
            consumer=of,
            links=links,
            missed=[Part(one) for one in reading.missed],
            error=reading.error,
        )


def _now(reading: Reading, links: Links) -> Now:
    at = nodes.clock(settings().DATABASE)
    known: list[Worker] | None = reading.part(Part.WORKERS, lambda: workers.living(at), None)
    none: list[Standing] = []
    standings = reading.part(Part.CONSUMERS, lambda: consumers.standings(at, known), none)
    return Now(
        at=at,
        workers=known or [],
        standings=standings,
        failures=reading.part(Part.DEAD, lambda: failures.read(standings, links), None),
        tables=reading.part(Part.TABLES, lambda: upkeep.tables(at), []),
        snapshots=reading.part(Part.SNAPSHOTS, upkeep.snapshots, []),
        partitions=reading.part(Part.PARTITIONS, lambda: upkeep.read_partitions(at), None),
    )
