"""Frames of `pulljobs top` as JSON values. Their names and units are stable for programs."""

from typing import Any

from pulljobs.admin.dashboard.consumer_status import ConsumerStatus
from pulljobs.admin.dashboard.workers import Worker
from pulljobs.management.top.frame import STEP, TopFrame
from pulljobs.storage.backlog import COUNTS


def frame_content(frame: TopFrame) -> dict[str, Any]:
    """Return all that one frame of `pulljobs top` shows, as JSON values."""
    return {
        "at": frame.at,
        "error": frame.error or None,
        "settled_per_second": round(frame.rate(), 2),
        "settled_is_estimate": frame.throughput.is_estimate,
        "trend": [
            round(point.settled / STEP.total_seconds(), 2) for point in frame.throughput.points
        ],
        "consumers": [consumer_content(frame, status) for status in frame.consumers],
        "consumers_in_all": len(frame.consumers),
        "nodes": [node_content(worker) for worker in frame.workers],
        "problems": [problem._asdict() for problem in frame.problems],
        "missed": [str(part.value) for part in frame.missed],
    }


def consumer_content(frame: TopFrame, status: ConsumerStatus) -> dict[str, Any]:
    """Return the status of a consumer as JSON values.

    Counts that are named in `at_least` were cut off, so there may be more such jobs.
    """
    backlog = status.backlog
    return {
        "consumer": status.path,
        "type": status.consumer.type,
        "ready": backlog.ready,
        "delayed": backlog.delayed,
        "blocked": backlog.blocked,
        "blocked_is_least": backlog.blocked_is_least,
        "in_flight": backlog.in_flight,
        "dead": backlog.dead,
        "cap": backlog.cap,
        "at_least": list(filter(backlog.is_least, COUNTS)),
        "estimate": status.estimate,
        "oldest_ready_seconds": status.oldest_seconds,
        "settled_per_second": round(frame.rate(status.consumer), 2),
        "paused_until": status.paused_until,
        "limit": None if status.hold is None else status.hold._asdict(),
        "circuits": {
            worker.node.name: worker.circuits[status.path]
            for worker in status.workers or ()
            if status.path in worker.circuits
        },
        "waiting_pulls": status.waiting,
        "nodes": [worker.node.name for worker in status.workers or ()],
        "is_served": status.is_served,
    }


def node_content(worker: Worker) -> dict[str, Any]:
    """Return the status of a node, as of its last heartbeat, as JSON values."""
    return {
        "node": worker.node.name,
        "id": worker.node.pk,
        "kind": worker.node.kind,
        "is_alive": worker.is_alive,
        "dead_loops": worker.dead_loops,
        "started_at": worker.node.started_at,
        "heartbeat_at": worker.node.heartbeat_at,
        "held": worker.held,
        "done": worker.report.get("done"),
        "running": [
            {"job": run.xid, "consumer": run.consumer, "seconds": round(run.seconds, 1)}
            for run in worker.running
        ],
        "serves": list(worker.serves),
        "circuits": dict(worker.circuits),
    }
