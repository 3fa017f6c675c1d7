"""What somebody should look at, the worst first: each with where on the page."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from pulljobs.admin.dashboard import figures
from pulljobs.admin.dashboard.consumers import Standing
from pulljobs.admin.dashboard.sums import total
from pulljobs.admin.dashboard.upkeep import Partitions, Snapshot, Table
from pulljobs.admin.dashboard.workers import Worker

SHOWN: Final = 40


class Finding(NamedTuple):
    is_bad: bool
    """Jobs or the upkeep are blocked by it."""
    text: str
    place: str
    """The section of the page."""


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda one: not one.is_bad)


def headline(findings: Sequence[Finding], *, is_whole: bool) -> str:
    """Of nothing it may speak only where all was read."""
    if not findings:
        if not is_whole:
            return _("The database did not tell all in time.")
        return _("Nothing needs attention.")
    worst = sum(one.is_bad for one in findings)
    told = {"all": len(findings), "worst": worst}
    return _("What needs attention: %(all)s, of which blocks jobs or the upkeep: %(worst)s.") % told


def of_consumers(standings: Sequence[Standing]) -> Iterator[Finding]:
    for one in standings:
        if one.is_left_alone:
            text = _("Jobs of %s wait and nobody serves it.") % one.place
            yield Finding(True, text, "consumers")
        if one.paused_until:
            told = {"place": one.place, "until": figures.moment(one.paused_until)}
            yield Finding(False, _("%(place)s is paused until %(until)s.") % told, "consumers")
    dead = total(standings, "dead")
    if dead.value:
        text = ngettext("%s job is dead.", "%s jobs are dead.", dead.value) % dead
        yield Finding(False, text, "failures")


def of_workers(workers: Sequence[Worker]) -> Iterator[Finding]:
    for one in workers:
        if not one.is_alive:
            told = {"name": one.node.name, "time": one.heard}
            text = _("Worker %(name)s has not been heard of for %(time)s.") % told
            yield Finding(True, text, "workers")
        elif one.dead_loops:
            told = {"name": one.node.name, "stands": one.stands}
            yield Finding(True, _("Worker %(name)s: %(stands)s.") % told, "workers")
        for place in one.circuits:
            text = _("%s is held back: its jobs fail in a row.") % place
            yield Finding(False, text, "workers")


def of_tables(tables: Sequence[Table]) -> Iterator[Finding]:
    for one in tables:
        if one.is_bloated:
            told = {"table": one.health.name, "dead": one.dead}
            text = _("%(table)s has %(dead)s dead rows: vacuum lags behind.") % told
            yield Finding(False, text, "tables")


def of_snapshots(snapshots: Sequence[Snapshot]) -> Iterator[Finding]:
    for one in snapshots:
        if one.is_old:
            told = {"who": one.who, "age": one.age, "kind": one.pin.kind}
            text = _("The %(kind)s %(who)s keeps dead rows from being cleaned: %(age)s.") % told
            yield Finding(True, text, "tables")


def of_partitions(partitions: Partitions) -> Iterator[Finding]:
    for table, count in partitions.crowded.items():
        told = {"table": table, "count": count}
        text = _("%(table)s_default holds %(count)s rows: their day had no partition.") % told
        yield Finding(True, text, "partitions")
    for table, days in partitions.missing.items():
        told = {"table": table, "days": ", ".join(f"{day:%Y-%m-%d}" for day in days)}
        text = _("%(table)s has no partition for %(days)s.") % told
        yield Finding(partitions.today in days, text, "partitions")
