"""Inspection of a node: its last heartbeat, and the leases that it holds."""

from typing import Any

from django.db.models import Count, Min

from pulljobs.admin.dashboard.workers import Worker
from pulljobs.conf import settings
from pulljobs.management import lookups
from pulljobs.management.inspection import shared
from pulljobs.management.output_blocks import (
    Block,
    Column,
    FactsBlock,
    StyledText,
    TableBlock,
    title,
)
from pulljobs.management.subcommands import CommandResult
from pulljobs.management.top import json_content
from pulljobs.management.top.frame import ViewSize
from pulljobs.management.top.nodes import render_nodes
from pulljobs.models import Lease
from pulljobs.storage import nodes


def inspect(text: str) -> CommandResult:
    """Return all facts about the node with this id, or the newest with this name, `host:pid`."""
    using = settings().DATABASE
    worker = Worker(lookups.find_node(text), nodes.clock(using))
    held = Lease.objects.using(using).filter(node_id=worker.node.pk)
    leases = held.aggregate(count=Count("id"), first_end=Min("leased_until"))
    content = {
        "kind": "node",
        **json_content.node_content(worker),
        "stopped_at": worker.node.stopped_at,
        "address": worker.node.address,
        "leases": leases["count"],
        "first_lease_until": leases["first_end"],
        "loops": worker.report.get("loops") or {},
    }
    return CommandResult(
        content,
        [title(f"Node {worker.node.name}"), FactsBlock(_facts(worker, content)), *_tables(worker)],
    )


def list_all() -> CommandResult:
    """Return a list of the nodes that did not stop and had a heartbeat within a day."""
    frame = shared.read_status(shared.NODE_PARTS)
    lines = list(render_nodes(frame, ViewSize()))
    content = {"nodes": [json_content.node_content(worker) for worker in frame.workers]}
    return shared.status_result(frame, content, lines[1:])


def _facts(worker: Worker, content: dict[str, Any]) -> list[tuple[str, StyledText]]:
    stopped = worker.node.stopped_at
    status = (
        StyledText("stopped")
        if stopped
        else StyledText(str(worker.status), shared.tone_of(worker.is_healthy))
    )
    names = ("id", "kind", "address", "started_at", "heartbeat_at", "stopped_at", "held", "done",
              "leases", "first_lease_until")  # fmt: skip
    known = {name: content[name] for name in names}
    serves = StyledText(", ".join(worker.serves) or "nothing")
    return [("status", status), *shared.format_facts(known), ("serves", serves)]


def _tables(worker: Worker) -> list[Block]:
    running = [[run.xid, run.consumer, run.time] for run in worker.running]
    loops = [_loop(*row) for row in (worker.report.get("loops") or {}).items()]
    circuits = [[held.subject, str(held.level), held.cause] for held in worker.held_back]
    numbers = [Column(name, is_number=True) for name in ("last pass", "failures")]
    return [
        title("Running jobs at its last heartbeat"),
        TableBlock(
            [Column("job"), Column("consumer"), Column("for", is_number=True)],
            running,
            "Nothing.",
        ),
        title("Loops"),
        TableBlock([Column("loop"), Column("state"), *numbers], loops, "It reported none."),
        title("Held back because their jobs fail"),
        TableBlock(
            [Column("consumer"), Column("level", is_number=True), Column("cause")], circuits
        ),
    ]


def _loop(name: str, loop: dict[str, Any]) -> list[Any]:
    is_alive, since = bool(loop.get("alive", True)), loop.get("last_pass_seconds")
    state = StyledText("alive" if is_alive else "dead", shared.tone_of(is_alive))
    last_pass = "" if since is None else f"{since} s ago"
    return [name, state, last_pass, str(loop.get("failures", 0))]
