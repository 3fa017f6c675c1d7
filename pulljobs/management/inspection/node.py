"""A node: what it said of itself with its last heartbeat, and what it holds."""

from typing import Any

from django.db.models import Count, Min

from pulljobs.admin.dashboard.workers import Worker
from pulljobs.conf import settings
from pulljobs.management import lookups
from pulljobs.management.inspection import standing, wording
from pulljobs.management.output_blocks import (
    Block,
    Column,
    FactsBlock,
    StyledText,
    TableBlock,
    text_columns,
    title,
)
from pulljobs.management.subcommands import CommandResult
from pulljobs.management.top import json_content, tables
from pulljobs.management.top.tables import ViewSize
from pulljobs.models import Lease
from pulljobs.storage import nodes


def inspect(text: str) -> CommandResult:
    using = settings().DATABASE
    one = Worker(lookups.find_node(text), nodes.clock(using))
    held = Lease.objects.using(using).filter(node_id=one.node.pk)
    leases = held.aggregate(count=Count("id"), first_end=Min("leased_until"))
    told = {
        "kind": "node",
        **json_content.node(one),
        "stopped_at": one.node.stopped_at,
        "address": one.node.address,
        "leases": leases["count"],
        "first_lease_until": leases["first_end"],
        "loops": one.report.get("loops", {}),
    }
    return CommandResult(
        told, [title(f"Node {one.node.name}"), FactsBlock(_facts(one, told)), *_tables(one)]
    )


def listed() -> CommandResult:
    now = standing.read(standing.OF_NODES)
    lines = list(tables.nodes(now, ViewSize()))
    told = {"nodes": [json_content.node(one) for one in now.workers]}
    return standing.answer(now, told, lines[1:])


def _facts(one: Worker, told: dict[str, Any]) -> list[tuple[str, StyledText]]:
    stopped = one.node.stopped_at
    stands = (
        StyledText("stopped")
        if stopped
        else StyledText(str(one.status), wording.tone(one.is_healthy))
    )
    wanted = ("id", "kind", "address", "started_at", "heartbeat_at", "stopped_at", "held", "done",
              "leases", "first_lease_until")  # fmt: skip
    known = {name: told[name] for name in wanted}
    serves = StyledText(", ".join(one.serves) or "nothing")
    return [("stands", stands), *wording.facts(known), ("serves", serves)]


def _tables(one: Worker) -> list[Block]:
    running = [[run.xid, run.consumer, run.time] for run in one.running]
    loops = [_loop(name, loop) for name, loop in one.report.get("loops", {}).items()]
    circuits = [[place, str(held["level"])] for place, held in one.circuits.items()]
    numbers = [Column(name, is_number=True) for name in ("last pass", "failures")]
    return [
        title("Runs, as of its last heartbeat"),
        TableBlock(
            [*text_columns("job", "consumer")[:1], Column("consumer"), Column("for", True)],
            running,
            "Nothing.",
        ),
        title("Loops"),
        TableBlock([Column("loop"), Column("state"), *numbers], loops, "It told of none."),
        title("Held back, for their jobs fail"),
        TableBlock([Column("consumer"), Column("level", is_number=True)], circuits),
    ]


def _loop(name: str, loop: dict[str, Any]) -> list[Any]:
    state = StyledText("alive" if loop["alive"] else "dead", wording.tone(loop["alive"]))
    return [name, state, f"{loop['last_pass_seconds']} s ago", str(loop.get("failures", 0))]
