"""Tiles at the top of the dashboard: six figures in large print."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from pulljobs.admin.dashboard import formats
from pulljobs.admin.dashboard.consumer_status import ConsumerStatus, total
from pulljobs.admin.dashboard.history import History
from pulljobs.admin.dashboard.ranges import Range
from pulljobs.admin.dashboard.reading import Part
from pulljobs.admin.dashboard.workers import Worker
from pulljobs.admin.links import Links
from pulljobs.models import Consumer, Node
from pulljobs.storage.settlement_history import Pace

MANY: Final = 0.05
"""Share of dead jobs among the settlements above which the tile is marked as bad."""


@dataclass(frozen=True)
class Tile:
    """Figure in large print, with a title above it and a note below it."""

    title: str
    value: str
    unit: str = ""
    note: str = ""
    tone: str = ""
    """Tone `bad` or `good`, shown as a colour in addition to the text."""
    address: str | None = None
    part: Part = Part.CONSUMERS
    """Part of the page from whose rows the figure is computed."""

    def as_unknown(self) -> "Tile":
        """Return the tile without its figure, because its rows could not be read."""
        return Tile(self.title, formats.NOTHING, note=_("not read in time"))


def backlog_tiles(
    statuses: Sequence[ConsumerStatus], workers: Sequence[Worker] | None, links: Links
) -> list[Tile]:
    """Return the tiles with the numbers of jobs that are ready, due later, in flight and dead.

    `workers` are all nodes. A note counts the healthy workers among them, or says that they were
    not read in time (None).
    """
    ages = [row.oldest_seconds for row in statuses if row.oldest_seconds is not None]
    dead = total(statuses, "dead")
    return [
        Tile(
            _("Ready"),
            str(total(statuses, "ready")),
            note=_("oldest for %s") % formats.duration(max(ages)) if ages else _("nothing waits"),
            address=links.jobs(state="QUEUED"),
        ),
        Tile(
            _("Due later"),
            str(total(statuses, "delayed")),
            note=_("%s blocked by their keys") % total(statuses, "blocked"),
        ),
        Tile(
            _("In flight"),
            str(total(statuses, "in_flight")),
            note=_("workers not read in time") if workers is None else _healthy(workers),
            address=links.jobs(state="INFLIGHT"),
        ),
        Tile(
            _("Dead"),
            str(dead),
            note=_("until they are redriven") if dead.value else _("none"),
            tone="bad" if dead.value else "",
            address=links.jobs(state="DEAD"),
        ),
    ]


def _healthy(workers: Sequence[Worker]) -> str:
    nodes = [worker for worker in workers if worker.node.kind == Node.Kind.WORKER]
    count = sum(worker.is_healthy for worker in nodes)
    return ngettext("%s healthy worker", "%s healthy workers", count) % count


def throughput_tile(pace: Pace, consumer: Consumer | None) -> Tile:
    """Return the tile with the settlements per minute of a consumer, or (None) of all."""
    note = _("in the last minute")
    if pace.is_estimate:
        note = _("at the pace of the last %s s") % formats.number(round(pace.seconds, 1))
    about = "≈ " if pace.is_estimate else ""
    return Tile(
        _("Throughput"),
        f"{about}{formats.number(pace.per_minute(None if consumer is None else consumer.pk))}",
        _("/ min"),
        note=note,
        part=Part.THROUGHPUT,
    )


def failed_tile(history: History, chosen: Range) -> Tile:
    """Return the tile with the share of dead jobs among the settlements of a range."""
    share = history.total.failed_share
    return Tile(
        _("Failed"),
        formats.NOTHING if share is None else formats.percent(share),
        note=_("%(dead)s of %(count)s settled in %(range)s")
        % {
            "dead": formats.number(history.total.dead),
            "count": formats.number(history.total.settled),
            "range": chosen.title,
        },
        tone="bad" if share and share > MANY else "",
        part=Part.HISTORY,
    )
