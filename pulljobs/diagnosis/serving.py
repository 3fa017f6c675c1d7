"""Processes that serve a consumer: living nodes, long polls and holders of leases."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.db.models import F, Q
from django.db.models.functions import Now

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.models import Consumer, Lease, Node, PullWaiter

MISSED_BEATS: Final = 3
MANY_FAILURES: Final = 10
"""Failed passes in a row after which a loop is reported. They take at least five seconds."""


def heartbeat_limit() -> timedelta:
    """Return the age of a heartbeat at which its node counts as gone."""
    return MISSED_BEATS * settings().HEARTBEAT_INTERVAL


def living() -> list[Node]:
    """Return the nodes with a recent heartbeat."""
    rows = Node.objects.using(settings().DATABASE).filter(stopped_at=None)
    return list(rows.filter(heartbeat_at__gt=Now() - heartbeat_limit()))


def has_worker() -> bool:
    """Return True if a worker has a recent heartbeat, which means that its reaper works."""
    return any(node.kind == Node.Kind.WORKER for node in living())


def gone() -> list[Node]:
    """Return the nodes whose heartbeats ended within the last day although they did not stop."""
    rows = Node.objects.using(settings().DATABASE).filter(stopped_at=None)
    limit = heartbeat_limit()
    return list(
        rows.filter(heartbeat_at__lte=Now() - limit, heartbeat_at__gt=Now() - timedelta(days=1))
    )


def dead_loops(node: Node) -> list[str]:
    """Return the names of a node's loops whose threads had died at its last heartbeat, sorted."""
    loops = node.report.get("loops") or {}
    return sorted(name for name, loop in loops.items() if not loop.get("alive", True))


def failing_loops(node: Node) -> list[str]:
    """Return the names of a node's loops that failed again and again up to its last heartbeat.

    They are sorted. A loop that repeats its pass after an outage of seconds is not among them.
    """
    loops = node.report.get("loops") or {}
    return sorted(
        name for name, loop in loops.items() if (loop.get("failures") or 0) >= MANY_FAILURES
    )


@dataclass(frozen=True)
class HeldBack:
    """Consumer, or one Django task of it, whose jobs a node holds back because they fail."""

    node: str
    path: str
    """Consumer path, `channel/consumer`."""
    task: str
    """Task that alone is held back, or empty if all jobs of the consumer are."""
    circuit: Mapping[str, Any]
    """Report of the circuit, as of the node's last heartbeat."""

    @property
    def subject(self) -> str:
        """Path `channel/consumer`, with the Django task if the circuit is of one task only."""
        return f"task {self.task} of {self.path}" if self.task else self.path

    @property
    def level(self) -> int:
        """Level of the circuit: the pause before the next probe doubles from level to level."""
        return int(self.circuit.get("level") or 0)

    @property
    def cause(self) -> str:
        """Clause that says how many jobs failed in a row, and which of them failed last."""
        if "failing" not in self.circuit:
            return "its jobs fail"
        last = ids.encode(int(self.circuit["job"]))
        error = f" ({self.circuit['error']})" if self.circuit["error"] else ""
        failing = self.circuit["failing"]
        jobs = "1 job" if failing == 1 else f"{failing} different jobs"
        return f"{jobs} failed and none succeeded since, the last was {last}{error}"

    @property
    def prospect(self) -> str:
        """Clause that says when the node tries the next job."""
        seconds = self.circuit.get("seconds")
        return f"one is tried in {seconds} s" if seconds else "one is tried at a time"


def held_back(node: Node) -> list[HeldBack]:
    """Return the consumers and tasks that a node's circuits pause, as of its last heartbeat."""
    return [
        HeldBack(node.name, path, task, circuit)
        for path, reported in (node.report.get("circuits") or {}).items()
        for task, circuit in reported.get("tasks", {"": reported}).items()
    ]


def held_back_of(nodes: Iterable[Node], path: str) -> list[HeldBack]:
    """Return the open circuits of these nodes for a consumer path, `channel/consumer`."""
    return [held for node in nodes for held in held_back(node) if held.path == path]


def is_served(consumer: Consumer, nodes: list[Node]) -> bool:
    """Return True if a worker serves the consumer, a pull waits for it, or a lease holds jobs."""
    path = consumer.path
    if any(path in (node.report.get("serves") or ()) for node in nodes):
        return True
    using = settings().DATABASE
    waiters = PullWaiter.objects.using(using).filter(
        consumer_id=consumer.pk, waiting_until__gt=Now()
    )
    held = Lease.objects.using(using).filter(consumer_id=consumer.pk, leased_until__gt=Now())
    return waiters.exists() or held.exists()


def advise_to_serve(consumer: Consumer) -> str:
    """Return what to start, so that a process serves the consumer, as the end of a sentence."""
    if consumer.type == Consumer.Type.PUSH:
        return "start a worker with the packages of pulljobs[push], and without --no-push"
    return "start a worker with a handler for it, or pull over HTTP"


def paused() -> list[Consumer]:
    """Return consumers that are paused themselves or by their channel."""
    by_itself, with_channel = Q(paused_until__gt=Now()), Q(channel__paused_until__gt=Now())
    rows = Consumer.objects.using(settings().DATABASE).filter(
        by_itself | with_channel, deleted_at=None
    )
    return list(rows.select_related("channel").order_by(F("channel__name"), F("name")))
