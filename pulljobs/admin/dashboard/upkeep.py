"""PostgreSQL's part: dead rows, partitions, and what keeps dead rows from being cleaned away."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from pulljobs.admin.dashboard import figures
from pulljobs.admin.dashboard.charts.bars import Stack, draw
from pulljobs.admin.dashboard.charts.frame import Frame
from pulljobs.admin.dashboard.charts.scales import linear
from pulljobs.conf import settings
from pulljobs.storage import blockers, health, partitions
from pulljobs.storage.blockers import Pin
from pulljobs.storage.health import TableHealth

DAYS_BACK: Final = 14
SHOWN_PINS: Final = 5
LONG_SNAPSHOT: Final = timedelta(seconds=60)
MANY_DEAD: Final = 0.2
WORTH_A_WORD: Final = 10_000
NAMES: Final = {"pulljobs_message": "messages", "pulljobs_archived_job": "archive"}


@dataclass(frozen=True)
class Table:
    health: TableHealth
    now: datetime

    @property
    def name(self) -> str:
        return self.health.name.removeprefix("pulljobs_")

    @property
    def rows(self) -> str:
        return figures.number(self.health.live_rows)

    @property
    def dead(self) -> str:
        return figures.number(self.health.dead_rows)

    @property
    def dead_share(self) -> float:
        return round(100 * self.health.dead_share, 1)

    @property
    def size(self) -> str:
        return figures.size(self.health.bytes)

    @property
    def is_bloated(self) -> bool:
        return self.health.dead_rows > WORTH_A_WORD and self.health.dead_share > MANY_DEAD

    @property
    def vacuumed(self) -> str:
        at = self.health.vacuumed_at
        if at is None:
            return _("not yet")
        return _("%s ago") % figures.coarse((self.now - at).total_seconds())


@dataclass(frozen=True)
class Snapshot:
    pin: Pin

    @property
    def who(self) -> str:
        return _("pid %s") % self.pin.name if self.pin.kind == "session" else self.pin.name

    @property
    def age(self) -> str:
        return figures.duration(self.pin.seconds)

    @property
    def is_old(self) -> bool:
        """What has no age is a slot or a standby that holds on."""
        seconds = self.pin.seconds
        return seconds is None or seconds > LONG_SNAPSHOT.total_seconds()


@dataclass(frozen=True)
class Day:
    day: date
    sizes: dict[str, int]
    """Bytes, by table; no entry: there is no partition."""
    rows: dict[str, int]


@dataclass(frozen=True)
class Partitions:
    """Those around today."""

    days: Sequence[Day]
    today: date
    older: dict[str, int]
    """How many there are beyond those days, by table."""
    in_default: dict[str, int]

    @property
    def crowded(self) -> dict[str, str]:
        """How many rows default partitions hold, by table."""
        return {
            table: figures.counted(count, is_least=count >= blockers.COUNT_CAP)
            for table, count in self.in_default.items()
        }

    @property
    def missing(self) -> dict[str, list[date]]:
        """Of today and the days for which they are made in advance."""
        ahead = [one for one in self.days if one.day >= self.today]
        found = {
            table: [one.day for one in ahead if table not in one.sizes]
            for table in partitions.PARTITIONED
        }
        return {table: days for table, days in found.items() if days}

    @property
    def chart(self) -> SafeString:
        past = [one for one in self.days if one.day <= self.today]
        stacks = [
            Stack([(NAMES[table], one.sizes.get(table, 0)) for table in partitions.PARTITIONED])
            for one in past
        ]
        around = Frame(
            label=_("Size of the partitions by day"),
            times=[f"{one.day.day} {one.day:%b}" for one in past],
            tips=[_tip(one) for one in past],
            scale=linear(max((stack.total for stack in stacks), default=0)),
            unit=figures.size,
        )
        return draw(around, stacks)

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """The same as a table, the newest day first."""
        return [
            (f"{one.day:%Y-%m-%d}", [_cell(one, table) for table in partitions.PARTITIONED])
            for one in reversed(self.days)
        ]

    @property
    def until(self) -> date | None:
        """The last day that has both."""
        whole = [one.day for one in self.days if len(one.sizes) == len(partitions.PARTITIONED)]
        return max(whole, default=None)


def tables(now: datetime) -> list[Table]:
    return [Table(one, now) for one in health.tables(settings().DATABASE)]


def snapshots() -> list[Snapshot]:
    """The oldest first: it decides what can be cleaned away. What has no age may be older yet."""
    pins = blockers.pins(settings().DATABASE, timedelta(0))
    pins.sort(key=lambda one: -math.inf if one.seconds is None else -one.seconds)
    return [Snapshot(pin) for pin in pins[:SHOWN_PINS]]


def read_partitions(now: datetime) -> Partitions:
    using, today = settings().DATABASE, now.astimezone(UTC).date()
    first = today - timedelta(days=DAYS_BACK - 1)
    last = today + timedelta(days=settings().PARTITIONS_AHEAD)
    days: dict[date, Day] = {
        first + timedelta(days=number): Day(first + timedelta(days=number), {}, {})
        for number in range((last - first).days + 1)
    }
    older = {}
    for table in partitions.PARTITIONED:
        there = partitions.existing(using, table)
        for one in health.sizes(using, [one for one in there if one.day in days]):
            days[one.partition.day].sizes[table] = one.bytes
            days[one.partition.day].rows[table] = one.rows
        older[table] = sum(1 for one in there if one.day < first)
    return Partitions(list(days.values()), today, older, blockers.in_default(using))


def _cell(one: Day, table: str) -> str:
    if table not in one.sizes:
        return _("none")
    rows = figures.number(one.rows[table])
    return _("%(size)s, about %(rows)s rows") % {
        "size": figures.size(one.sizes[table]),
        "rows": rows,
    }


def _tip(one: Day) -> str:
    told = [f"{NAMES[table]} {_cell(one, table)}" for table in partitions.PARTITIONED]
    return f"{one.day:%Y-%m-%d}: {'; '.join(told)}"
