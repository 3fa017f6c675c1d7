"""Workers, and what they did at their last heartbeat."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.utils.translation import gettext as _

from pulljobs import ids
from pulljobs.admin.dashboard import figures
from pulljobs.admin.dashboard.links import Links
from pulljobs.conf import settings
from pulljobs.diagnosis import serving
from pulljobs.models import Node

SHOWN: Final = 24
SHOWN_JOBS: Final = 12
FORGOTTEN: Final = timedelta(days=1)


@dataclass(frozen=True)
class Running:
    xid: str
    job_id: int
    consumer: str
    seconds: float
    is_over: bool
    """It has ended, and waits to be written."""

    @property
    def time(self) -> str:
        return figures.duration(self.seconds)


@dataclass(frozen=True)
class Worker:
    node: Node
    now: datetime

    @property
    def report(self) -> Mapping[str, Any]:
        said: Mapping[str, Any] = self.node.report
        return said

    @property
    def silence(self) -> timedelta:
        return self.now - self.node.heartbeat_at

    @property
    def is_alive(self) -> bool:
        return self.silence <= serving.heartbeat_limit()

    @property
    def dead_loops(self) -> list[str]:
        loops = self.report.get("loops", {}).items()
        return sorted(name for name, loop in loops if not loop["alive"])

    @property
    def is_well(self) -> bool:
        return self.is_alive and not self.dead_loops

    @property
    def stands(self) -> str:
        if not self.is_alive:
            return _("silent")
        return _("its %s is dead") % ", ".join(self.dead_loops) if self.dead_loops else _("alive")

    @property
    def serves(self) -> Sequence[str]:
        served: Sequence[str] = self.report.get("serves", ())
        return served

    @property
    def circuits(self) -> Mapping[str, Any]:
        held_back: Mapping[str, Any] = self.report.get("circuits", {})
        return held_back

    @property
    def held_back(self) -> list[str]:
        return [
            _("%(place)s, level %(level)s") % {"place": place, "level": circuit["level"]}
            for place, circuit in self.circuits.items()
        ]

    @property
    def up(self) -> str:
        return figures.coarse((self.now - self.node.started_at).total_seconds())

    @property
    def heard(self) -> str:
        return figures.coarse(self.silence.total_seconds())

    @property
    def done(self) -> str | None:
        done = self.report.get("done")
        return None if done is None else figures.number(done)

    @property
    def held(self) -> int:
        return int(self.report.get("held", 0))

    @property
    def running(self) -> list[Running]:
        """Longest first, as of its heartbeat: since then they may have ended."""
        found = [_running(said) for said in self.report.get("running", ())]
        return sorted(found, key=lambda one: -one.seconds)


@dataclass(frozen=True)
class Card:
    """What the page says of a worker."""

    worker: Worker
    links: Links

    @property
    def address(self) -> str | None:
        return self.links.node(self.worker.node.pk)

    @property
    def jobs(self) -> list[tuple[Running, str | None]]:
        shown = self.worker.running[:SHOWN_JOBS]
        return [(one, self.links.job(one.job_id)) for one in shown]

    @property
    def more(self) -> int:
        return max(0, len(self.worker.running) - SHOWN_JOBS)


def living(now: datetime) -> list[Worker]:
    """Those that did not say they stop, the newest first, and were heard of within a day."""
    rows = Node.objects.using(settings().DATABASE).filter(
        stopped_at=None, heartbeat_at__gt=now - FORGOTTEN
    )
    return [Worker(node, now) for node in rows.order_by("-started_at")]


def _running(said: Mapping[str, Any]) -> Running:
    job_id, is_over = int(said["job"]), bool(said.get("ended"))
    return Running(ids.encode(job_id), job_id, said["consumer"], said["seconds"], is_over)
