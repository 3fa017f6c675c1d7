"""A frame as JSON: names and units stay as they are, whatever people are shown."""

from typing import Any

from pulljobs.admin.dashboard.consumers import ConsumerStatus
from pulljobs.admin.dashboard.workers import Worker
from pulljobs.management.top.frame import STEP, TopFrame


def of(frame: TopFrame) -> dict[str, Any]:
    return {
        "at": frame.at,
        "error": frame.error or None,
        "settled_per_second": round(frame.rate(), 2),
        "trend": [round(point.settled / STEP.total_seconds(), 2) for point in frame.lately.points],
        "consumers": [consumer(frame, one) for one in frame.standings],
        "consumers_in_all": len(frame.standings),
        "nodes": [node(one) for one in frame.workers],
        "problems": [one._asdict() for one in frame.findings],
        "missed": [str(part.value) for part in frame.missed],
    }


def consumer(frame: TopFrame, one: ConsumerStatus) -> dict[str, Any]:
    """Counts go no farther than `cap`; of what is blocked there may be more before."""
    backlog = one.backlog
    return {
        "consumer": one.path,
        "type": one.consumer.type,
        "ready": backlog.ready,
        "delayed": backlog.delayed,
        "blocked": backlog.blocked,
        "blocked_is_least": backlog.blocked_is_least,
        "in_flight": backlog.in_flight,
        "dead": backlog.dead,
        "cap": backlog.cap,
        "estimate": one.estimate,
        "oldest_ready_seconds": one.oldest_seconds,
        "settled_per_second": round(frame.rate(one.consumer), 2),
        "paused_until": one.paused_until,
        "circuits": {
            worker.node.name: worker.circuits[one.path]
            for worker in one.workers or ()
            if one.path in worker.circuits
        },
        "waiting_pulls": one.waiting,
        "nodes": [worker.node.name for worker in one.workers or ()],
        "is_served": one.is_served,
    }


def node(one: Worker) -> dict[str, Any]:
    return {
        "node": one.node.name,
        "id": one.node.pk,
        "kind": one.node.kind,
        "is_alive": one.is_alive,
        "dead_loops": one.dead_loops,
        "started_at": one.node.started_at,
        "heartbeat_at": one.node.heartbeat_at,
        "held": one.held,
        "done": one.report.get("done"),
        "running": [
            {"job": run.xid, "consumer": run.consumer, "seconds": round(run.seconds, 1)}
            for run in one.running
        ],
        "serves": list(one.serves),
        "circuits": dict(one.circuits),
    }
