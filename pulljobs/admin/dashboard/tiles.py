"""The figures at the top: how things stand, in six numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from pulljobs.admin.dashboard import figures
from pulljobs.admin.dashboard.consumers import Standing
from pulljobs.admin.dashboard.history import History
from pulljobs.admin.dashboard.links import Links
from pulljobs.admin.dashboard.ranges import Range
from pulljobs.admin.dashboard.reading import Part
from pulljobs.admin.dashboard.sums import total
from pulljobs.admin.dashboard.workers import Worker

MANY: Final = 0.05
"""The share of failures that is no everyday thing."""


@dataclass(frozen=True)
class Tile:
    title: str
    value: str
    unit: str = ""
    note: str = ""
    tone: str = ""
    """`bad` or `good`: said by a colour beside the words."""
    address: str | None = None
    part: Part = Part.CONSUMERS
    """Of which it is made."""

    def untold(self) -> "Tile":
        """It is not known."""
        return Tile(self.title, figures.NOTHING, note=_("not told in time"))


def now(
    standings: Sequence[Standing], workers: Sequence[Worker] | None, links: Links
) -> list[Tile]:
    """Of all consumers; without workers where they are not known."""
    ages = [one.oldest_seconds for one in standings if one.oldest_seconds is not None]
    dead = total(standings, "dead")
    return [
        Tile(
            _("Ready"),
            str(total(standings, "ready")),
            note=_("oldest for %s") % figures.duration(max(ages)) if ages else _("nothing waits"),
            address=links.jobs(state="QUEUED"),
        ),
        Tile(
            _("Due later"),
            str(total(standings, "delayed")),
            note=_("%s behind their keys") % total(standings, "blocked"),
        ),
        Tile(
            _("In flight"),
            str(total(standings, "in_flight")),
            note=_("workers not told in time") if workers is None else _well(workers),
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


def _well(workers: Sequence[Worker]) -> str:
    count = sum(one.is_well for one in workers)
    return ngettext("%s worker is well", "%s workers are well", count) % count


def throughput(lately: History) -> Tile:
    """Of some whole minutes."""
    rate = lately.total.settled / max(1, len(lately.points))
    about = "≈ " if lately.is_estimate else ""
    return Tile(
        _("Throughput"),
        f"{about}{figures.number(round(rate, 1))}",
        _("/ min"),
        note=_("over the last %s minutes") % len(lately.points),
        part=Part.THROUGHPUT,
    )


def failed(history: History, chosen: Range) -> Tile:
    share = history.total.failed_share
    return Tile(
        _("Failed"),
        figures.NOTHING if share is None else figures.percent(share),
        note=_("of %(count)s settled in %(range)s")
        % {"count": figures.compact(round(history.total.settled)), "range": chosen.title},
        tone="bad" if share and share > MANY else "",
        part=Part.HISTORY,
    )
