"""Table of nodes for `pulljobs top`, with the jobs that each runs."""

from collections import Counter
from collections.abc import Iterator

from pulljobs.admin.dashboard import formats
from pulljobs.admin.dashboard.reading import Part
from pulljobs.admin.dashboard.workers import Worker
from pulljobs.management.output_blocks import Block, Cell, Column, StyledText, TableBlock, Tone
from pulljobs.management.top.frame import TopFrame, ViewSize, empty_text


def render_nodes(frame: TopFrame, size: ViewSize) -> Iterator[Block]:
    """Render an empty line and the table of nodes."""
    columns = [
        Column("node"),
        Column("kind"),
        *(Column(name, is_number=True) for name in ("up", "beat", "held", "done")),
        Column("does now", may_shrink=True),
    ]
    shown = frame.workers[: size.nodes]
    yield StyledText("")
    yield TableBlock(
        columns,
        [_node_row(worker) for worker in shown],
        empty_text(frame, Part.WORKERS, "No node is at work."),
    )
    if more := len(frame.workers) - len(shown):
        yield StyledText(f"and {more:,} more", Tone.FAINT)


def _node_row(worker: Worker) -> list[Cell]:
    return [
        StyledText(worker.node.name, Tone.TITLE),
        worker.node.kind,
        worker.uptime,
        worker.silence_text,
        f"{worker.held:,}",
        worker.done or formats.NOTHING,
        activity(worker),
    ]


def activity(worker: Worker) -> StyledText:
    """Return a node's running jobs by consumer, longest run first, or its status if unhealthy."""
    if not worker.is_healthy:
        return StyledText(str(worker.status), Tone.BAD)
    if not worker.running:
        return StyledText("nothing", Tone.FAINT)
    counts = Counter(run.consumer for run in worker.running)
    longest = {run.consumer: run.time for run in reversed(worker.running)}
    runs = [f"{place} × {counts[place]}, {longest[place]}" for place in counts]
    return StyledText("; ".join(runs), Tone.GOOD)
