"""Nodes as the dashboard and `pulljobs top` show them, by the reports of their last heartbeats."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.utils.translation import gettext as _

from pulljobs import ids
from pulljobs.admin.dashboard import formats
from pulljobs.admin.links import Links
from pulljobs.conf import settings
from pulljobs.diagnosis import serving
from pulljobs.diagnosis.serving import HeldBack
from pulljobs.models import Node

SHOWN: Final = 24
SHOWN_JOBS: Final = 12
FORGOTTEN: Final = timedelta(days=1)


@dataclass(frozen=True)
class RunningJob:
    """Job that a node ran at its last heartbeat."""

    xid: str
    job_id: int
    consumer: str
    seconds: float
    is_cancelled: bool
    """True if the run was cancelled and its handler had not ended."""

    @property
    def time(self) -> str:
        """Run time up to the heartbeat as text."""
        return formats.duration(self.seconds)


@dataclass(frozen=True)
class Worker:
    """Node (worker, API server or Spark), by its row and the report of its last heartbeat."""

    node: Node
    now: datetime

    @property
    def report(self) -> Mapping[str, Any]:
        """Report of the last heartbeat: JSON of the node's loops, consumers and jobs."""
        report: Mapping[str, Any] = self.node.report
        return report

    @property
    def silence(self) -> timedelta:
        """Time since the last heartbeat."""
        return self.now - self.node.heartbeat_at

    @property
    def is_alive(self) -> bool:
        """True if the last heartbeat is recent, by the limit that `diagnosis.serving` sets."""
        return self.silence <= serving.heartbeat_limit()

    @property
    def dead_loops(self) -> list[str]:
        """Names of the node's loops whose threads died, sorted."""
        return serving.dead_loops(self.node)

    @property
    def is_healthy(self) -> bool:
        """True if the heartbeat is recent and no loop is dead."""
        return self.is_alive and not self.dead_loops

    @property
    def status(self) -> str:
        """Text "silent", "alive", or "its flusher is dead" with the names of dead loops."""
        if not self.is_alive:
            return _("silent")
        return _("its %s is dead") % ", ".join(self.dead_loops) if self.dead_loops else _("alive")

    @property
    def serves(self) -> Sequence[str]:
        """Paths (`channel/consumer`) of the consumers that the node serves."""
        served: Sequence[str] = self.report.get("serves") or ()
        return served

    @property
    def circuits(self) -> Mapping[str, Any]:
        """Reports of open circuits by consumer path, `channel/consumer`."""
        circuits: Mapping[str, Any] = self.report.get("circuits") or {}
        return circuits

    @property
    def held_back(self) -> list[HeldBack]:
        """Consumers and tasks with an open circuit, whose jobs the node holds back."""
        return serving.held_back(self.node)

    @property
    def uptime(self) -> str:
        """Time since the start of the node as text."""
        return formats.coarse((self.now - self.node.started_at).total_seconds())

    @property
    def silence_text(self) -> str:
        """Time since the last heartbeat as text."""
        return formats.coarse(self.silence.total_seconds())

    @property
    def done(self) -> str | None:
        """Number of handler runs that ended since the node's start, as text, or None if unknown."""
        done = self.report.get("done")
        return None if done is None else formats.number(done)

    @property
    def held(self) -> int:
        """Number of jobs that the node held in flight at its last heartbeat."""
        held = self.report.get("held")
        return held if isinstance(held, int) else 0

    @property
    def running(self) -> list[RunningJob]:
        """Jobs that ran at the last heartbeat, longest run time first."""
        jobs = [_running(entry) for entry in self.report.get("running") or ()]
        return sorted(jobs, key=lambda job: -job.seconds)


@dataclass(frozen=True)
class WorkerCard:
    """Card that describes a node on the dashboard."""

    worker: Worker
    links: Links

    @property
    def address(self) -> str | None:
        """URL of the node's page, or None if the user may not see it."""
        return self.links.node(self.worker.node.pk)

    @property
    def jobs(self) -> list[tuple[RunningJob, str | None]]:
        """Running jobs on the card, each with its URL, or None if the user can't open its page."""
        return [(job, self.links.job(job.job_id)) for job in self.worker.running[:SHOWN_JOBS]]

    @property
    def more(self) -> int:
        """Number of running jobs that the card does not list."""
        return max(0, len(self.worker.running) - SHOWN_JOBS)


def read_workers(now: datetime) -> list[Worker]:
    """Return the nodes that did not stop and had a heartbeat within a day, newest start first."""
    rows = Node.objects.using(settings().DATABASE).filter(
        stopped_at=None, heartbeat_at__gt=now - FORGOTTEN
    )
    return [Worker(node, now) for node in rows.order_by("-started_at")]


def _running(entry: Mapping[str, Any]) -> RunningJob:
    """Return a running job of a report, from which another release may omit keys except "job"."""
    job_id, seconds = int(entry["job"]), float(entry.get("seconds") or 0)
    consumer, is_cancelled = str(entry.get("consumer") or ""), bool(entry.get("ended"))
    return RunningJob(ids.encode(job_id), job_id, consumer, seconds, is_cancelled)
