"""Findings: problems that the top of the dashboard and `pulljobs top` list, the worst first."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from pulljobs.admin.dashboard import formats
from pulljobs.admin.dashboard.consumer_status import ConsumerStatus, total
from pulljobs.admin.dashboard.upkeep import Partitions, PinnedSnapshot, TableRow
from pulljobs.admin.dashboard.workers import Worker

SHOWN: Final = 40


class Attention(NamedTuple):
    """Finding: a problem that an operator has to look at, as a sentence."""

    is_bad: bool
    """True if the problem blocks jobs or maintenance."""
    text: str
    section: str
    """Anchor of the section of the page with the details."""


def rank(findings: Sequence[Attention]) -> list[Attention]:
    """Return the findings with those that block jobs or maintenance first."""
    return sorted(findings, key=lambda finding: not finding.is_bad)


def headline(findings: Sequence[Attention], *, is_whole: bool) -> str:
    """Return the headline: how many findings there are, or that nothing needs attention.

    It is not the latter if `is_whole` is False, because parts of the page could not be read.
    """
    if not findings:
        if not is_whole:
            return _("Some parts were not read in time.")
        return _("Nothing needs attention.")
    counts = {"all": len(findings), "worst": sum(finding.is_bad for finding in findings)}
    return _("Findings: %(all)s. Those that block jobs or maintenance: %(worst)s.") % counts


def check_consumers(statuses: Sequence[ConsumerStatus]) -> Iterator[Attention]:
    """Yield findings about ready jobs that no process serves, paused consumers and dead jobs."""
    for status in statuses:
        if status.is_unserved:
            text = _("Jobs of %s wait and no process serves it.") % status.path
            yield Attention(True, text, "consumers")
        if status.paused_until:
            values = {"path": status.path, "until": formats.timestamp(status.paused_until)}
            yield Attention(False, _("%(path)s is paused until %(until)s.") % values, "consumers")
    dead = total(statuses, "dead")
    if dead.value:
        text = ngettext("%s job is dead.", "%s jobs are dead.", dead.value) % dead
        yield Attention(False, text, "failures")


def check_workers(workers: Sequence[Worker]) -> Iterator[Attention]:
    """Yield findings about workers without a recent heartbeat, dead loops and open circuits."""
    for worker in workers:
        if not worker.is_alive:
            values = {"name": worker.node.name, "time": worker.silence_text}
            text = _("Worker %(name)s has had no heartbeat for %(time)s.") % values
            yield Attention(True, text, "workers")
        elif worker.dead_loops:
            values = {"name": worker.node.name, "status": worker.status}
            yield Attention(True, _("Worker %(name)s: %(status)s.") % values, "workers")
    # Several workers may hold back the same consumer, each by its own count of failures.
    for held in {held.subject: held for worker in workers for held in worker.held_back}.values():
        values = {"subject": held.subject, "cause": held.cause}
        yield Attention(False, _("%(subject)s is held back: %(cause)s.") % values, "workers")


def check_tables(tables: Sequence[TableRow]) -> Iterator[Attention]:
    """Yield a finding for each table with many dead rows."""
    for table in tables:
        if table.is_bloated:
            values = {"table": table.health.name, "dead": table.dead}
            text = _("%(table)s has %(dead)s dead rows: vacuum lags behind.") % values
            yield Attention(False, text, "tables")


def check_snapshots(snapshots: Sequence[PinnedSnapshot]) -> Iterator[Attention]:
    """Yield a finding for each old snapshot, which keeps vacuum from removing dead rows."""
    for snapshot in snapshots:
        if snapshot.is_old:
            values = {"holder": snapshot.holder, "age": snapshot.age, "kind": snapshot.pin.kind}
            text = (
                _("The %(kind)s %(holder)s keeps dead rows from being cleaned up: %(age)s.")
                % values
            )
            yield Attention(True, text, "tables")


def check_partitions(partitions: Partitions) -> Iterator[Attention]:
    """Yield findings about rows in default partitions, and days from today on without partition."""
    for table, count in partitions.crowded.items():
        values = {"table": table, "count": count}
        text = _("%(table)s_default holds %(count)s rows: their day had no partition.") % values
        yield Attention(True, text, "partitions")
    for table, days in partitions.missing.items():
        values = {"table": table, "days": ", ".join(f"{day:%Y-%m-%d}" for day in days)}
        text = _("%(table)s has no partition for %(days)s.") % values
        yield Attention(partitions.today in days, text, "partitions")
