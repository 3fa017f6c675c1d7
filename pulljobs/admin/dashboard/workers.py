"""Workers, and their reports at the last heartbeat."""

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
from pulljobs.diagnosis.serving import HeldBack
from pulljobs.models import Node

SHOWN: Final = 24
SHOWN_JOBS: Final = 12
FORGOTTEN: Final = timedelta(days=1)


@dataclass(frozen=True)
class RunningJob:
    """Job that a worker was running at its last heartbeat."""

    xid: str
    job_id: int
    consumer: str
    seconds: float
    is_over: bool
    """True if it has ended and its outcome is not written yet."""

    @property
    def time(self) -> str:
        """Run time so far."""
        return figures.duration(self.seconds)


@dataclass(frozen=True)
class Worker:
    """Worker process by its node row."""

    node: Node
    now: datetime

    @property
    def report(self) -> Mapping[str, Any]:
        """Report of its last heartbeat."""
        report: Mapping[str, Any] = self.node.report
        return report

    @property
    def silence(self) -> timedelta:
        """Time since its last heartbeat."""
        return self.now - self.node.heartbeat_at

    @property
    def is_alive(self) -> bool:
        """True if its heartbeat is recent."""
        return self.silence <= serving.heartbeat_limit()

    @property
    def dead_loops(self) -> list[str]:
        """Names of its loops that ended."""
        loops = self.report.get("loops", {}).items()
        return sorted(name for name, loop in loops if not loop["alive"])

    @property
    def is_healthy(self) -> bool:
        """True if it is alive and all its loops are."""
        return self.is_alive and not self.dead_loops

    @property
    def status(self) -> str:
        """Status as text."""
        if not self.is_alive:
            return _("silent")
        return _("its %s is dead") % ", ".join(self.dead_loops) if self.dead_loops else _("alive")

    @property
    def serves(self) -> Sequence[str]:
        """Paths (`channel/consumer`) of the consumers that the worker serves."""
        served: Sequence[str] = self.report.get("serves", ())
        return served

    @property
    def circuits(self) -> Mapping[str, Any]:
        """Open circuits by consumer path."""
        circuits: Mapping[str, Any] = self.report.get("circuits", {})
        return circuits

    @property
    def held_back(self) -> list[HeldBack]:
        """Consumers and tasks that it holds back."""
        return serving.held_back(self.node)

    @property
    def uptime(self) -> str:
        """Time since its start."""
        return figures.coarse((self.now - self.node.started_at).total_seconds())

    @property
    def silence_text(self) -> str:
        """Time since its last heartbeat as text."""
        return figures.coarse(self.silence.total_seconds())

    @property
    def done(self) -> str | None:
        """Number of jobs done, if it reports it."""
        done = self.report.get("done")
        return None if done is None else figures.number(done)

    @property
    def held(self) -> int:
        """Number of jobs that it holds."""
        return int(self.report.get("held", 0))

    @property
    def running(self) -> list[RunningJob]:
        """Jobs that ran at its last heartbeat, longest first. They may have ended since."""
        jobs = [_running(entry) for entry in self.report.get("running", ())]
        return sorted(jobs, key=lambda job: -job.seconds)


@dataclass(frozen=True)
class WorkerCard:
    """Card of a worker on the page."""

    worker: Worker
    links: Links

    @property
    def address(self) -> str | None:
        """URL of its page, if the user may see it."""
        return self.links.node(self.worker.node.pk)

    @property
    def jobs(self) -> list[tuple[RunningJob, str | None]]:
        """Running jobs with their URLs."""
        return [(job, self.links.job(job.job_id)) for job in self.worker.running[:SHOWN_JOBS]]

    @property
    def more(self) -> int:
        """Number of running jobs that are not shown."""
        return max(0, len(self.worker.running) - SHOWN_JOBS)


def read_workers(now: datetime) -> list[Worker]:
    """Return the workers that did not stop and had a heartbeat within a day, newest first."""
    rows = Node.objects.using(settings().DATABASE).filter(
        stopped_at=None, heartbeat_at__gt=now - FORGOTTEN
    )
    return [Worker(node, now) for node in rows.order_by("-started_at")]


def _running(entry: Mapping[str, Any]) -> RunningJob:
    job_id, is_over = int(entry["job"]), bool(entry.get("ended"))
    return RunningJob(ids.encode(job_id), job_id, entry["consumer"], entry["seconds"], is_over)
