"""State of the tables in PostgreSQL: dead rows, old snapshots that keep them, and partitions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from pulljobs.admin.dashboard import formats
from pulljobs.admin.dashboard.charts import Frame, Stack, draw_bars, linear_scale
from pulljobs.conf import settings
from pulljobs.storage import health, partitions, snapshots
from pulljobs.storage.health import TableHealth
from pulljobs.storage.snapshots import OldSnapshot

DAYS_BACK: Final = 14
SHOWN_PINS: Final = 5
LONG_SNAPSHOT: Final = timedelta(seconds=60)
MANY_DEAD: Final = 0.2
MANY_DEAD_ROWS: Final = 10_000
NAMES: Final = {"pulljobs_message": "messages", "pulljobs_archived_job": "archive"}


@dataclass(frozen=True)
class TableRow:
    """Table of pulljobs, with its size and its dead rows, which vacuum has not removed yet."""

    health: TableHealth
    now: datetime

    @property
    def name(self) -> str:
        """Name of the table without the prefix `pulljobs_`."""
        return self.health.name.removeprefix("pulljobs_")

    @property
    def rows(self) -> str:
        """Number of live rows as text, by PostgreSQL's statistics."""
        return formats.number(self.health.live_rows)

    @property
    def dead(self) -> str:
        """Number of dead rows as text, by PostgreSQL's statistics."""
        return formats.number(self.health.dead_rows)

    @property
    def dead_share(self) -> float:
        """Share of dead rows in per cent, as the length of a bar."""
        return round(100 * self.health.dead_share, 1)

    @property
    def size(self) -> str:
        """Size of the table with its indexes as text."""
        return formats.size(self.health.bytes)

    @property
    def is_bloated(self) -> bool:
        """True if many rows of the table, and a large share of them, are dead."""
        return self.health.dead_rows > MANY_DEAD_ROWS and self.health.dead_share > MANY_DEAD

    @property
    def vacuumed(self) -> str:
        """Time since the last vacuum as text, or "not yet"."""
        at = self.health.vacuumed_at
        if at is None:
            return _("not yet")
        return _("%s ago") % formats.coarse((self.now - at).total_seconds())


@dataclass(frozen=True)
class PinnedSnapshot:
    """Old snapshot or prepared transaction, which keeps dead rows from vacuum."""

    pin: OldSnapshot

    @property
    def holder(self) -> str:
        """Name of the slot or transaction, process id of a standby, or "pid 1234" of a session."""
        return _("pid %s") % self.pin.name if self.pin.kind == "session" else self.pin.name

    @property
    def age(self) -> str:
        """Age of the snapshot as text, or "–" if it is unknown."""
        return formats.duration(self.pin.seconds)

    @property
    def is_old(self) -> bool:
        """True if the snapshot is more than a minute old, or of unknown age."""
        seconds = self.pin.seconds
        return seconds is None or seconds > LONG_SNAPSHOT.total_seconds()


@dataclass(frozen=True)
class PartitionDay:
    """Partitions of all partitioned tables for one day of UTC."""

    day: date
    sizes: dict[str, int]
    """Bytes by table. A table without a partition for the day has no entry."""
    rows: dict[str, int]
    """Estimated number of rows by table."""


@dataclass(frozen=True)
class Partitions:
    """Partitions by day since two weeks ago, counts of older ones, rows in default partitions."""

    days: Sequence[PartitionDay]
    today: date
    older: dict[str, int]
    """Number of partitions of earlier days by table."""
    in_default: dict[str, int]
    """Number of rows in default partitions by table, up to a cap, for tables that have some."""

    @property
    def crowded(self) -> dict[str, str]:
        """Number of rows in the default partition of each table that has some, as text."""
        return {
            table: formats.counted(count, is_least=count >= partitions.COUNT_CAP)
            for table, count in self.in_default.items()
        }

    @property
    def missing(self) -> dict[str, list[date]]:
        """Days without a partition, from today on, of each table that has such days."""
        ahead = [row for row in self.days if row.day >= self.today]
        missing = {
            table: [row.day for row in ahead if table not in row.sizes]
            for table in partitions.PARTITIONED
        }
        return {table: days for table, days in missing.items() if days}

    @property
    def chart(self) -> SafeString:
        """Bar chart of the sizes of the partitions of each day, up to today."""
        past = [row for row in self.days if row.day <= self.today]
        stacks = [
            Stack([(NAMES[table], row.sizes.get(table, 0)) for table in partitions.PARTITIONED])
            for row in past
        ]
        around = Frame(
            label=_("Size of the partitions by day"),
            times=[f"{row.day.day} {row.day:%b}" for row in past],
            tips=[_tip(row) for row in past],
            scale=linear_scale(max((stack.total for stack in stacks), default=0)),
            unit=formats.size,
        )
        return draw_bars(around, stacks)

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """Rows of the page, newest day first: the day, and size and row count of each partition."""
        return [
            (f"{row.day:%Y-%m-%d}", [_cell(row, table) for table in partitions.PARTITIONED])
            for row in reversed(self.days)
        ]

    @property
    def until(self) -> date | None:
        """Last day for which every partitioned table has a partition, or None if no day has all."""
        whole = [row.day for row in self.days if len(row.sizes) == len(partitions.PARTITIONED)]
        return max(whole, default=None)


def read_tables(now: datetime) -> list[TableRow]:
    """Return the tables of pulljobs whose rows are updated or deleted, in a fixed order."""
    return [TableRow(table, now) for table in health.tables(settings().DATABASE)]


def read_snapshots() -> list[PinnedSnapshot]:
    """Return the oldest snapshots that keep dead rows, oldest first.

    Those of unknown age come before all others, as they may be older.
    """
    pins = snapshots.find_old(settings().DATABASE, timedelta(0))
    pins.sort(key=lambda pin: -math.inf if pin.seconds is None else -pin.seconds)
    return [PinnedSnapshot(pin) for pin in pins[:SHOWN_PINS]]


def read_partitions(now: datetime) -> Partitions:
    """Return the partitions of two weeks up to today, and of the days ahead."""
    using, today = settings().DATABASE, now.astimezone(UTC).date()
    first = today - timedelta(days=DAYS_BACK - 1)
    last = today + timedelta(days=settings().PARTITIONS_AHEAD)
    days: dict[date, PartitionDay] = {
        first + timedelta(days=number): PartitionDay(first + timedelta(days=number), {}, {})
        for number in range((last - first).days + 1)
    }
    older = {}
    for table in partitions.PARTITIONED:
        existing = partitions.existing(using, table)
        for measured in health.sizes(using, [part for part in existing if part.day in days]):
            days[measured.partition.day].sizes[table] = measured.bytes
            days[measured.partition.day].rows[table] = measured.rows
        older[table] = sum(1 for partition in existing if partition.day < first)
    return Partitions(list(days.values()), today, older, partitions.count_in_default(using))


def _cell(day: PartitionDay, table: str) -> str:
    if table not in day.sizes:
        return _("none")
    rows = formats.number(day.rows[table])
    return _("%(size)s, about %(rows)s rows") % {
        "size": formats.size(day.sizes[table]),
        "rows": rows,
    }


def _tip(day: PartitionDay) -> str:
    cells = [f"{NAMES[table]} {_cell(day, table)}" for table in partitions.PARTITIONED]
    return f"{day.day:%Y-%m-%d}: {'; '.join(cells)}"
