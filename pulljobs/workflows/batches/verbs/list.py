"""List batches, newest first, with their progress."""

from argparse import ArgumentParser
from typing import Any, Final

from pulljobs.conf import settings
from pulljobs.management.output_blocks import Cell, Column, StyledText, TableBlock, Tone
from pulljobs.management.parsing import whole_number
from pulljobs.management.subcommands import CommandResult
from pulljobs.workflows.batches import reading, rendering
from pulljobs.workflows.batches.reading import BatchView
from pulljobs.workflows.models import Batch

SHOWN: Final = 100


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--name", help="only batches of this name")
    parser.add_argument("--live", action="store_true", help="only batches that are not complete")
    parser.add_argument(
        "--limit", type=whole_number(1), default=SHOWN, help="at most so many (%(default)s)"
    )


def handle(*, name: str | None, live: bool, limit: int, **options: Any) -> CommandResult:
    rows = Batch.objects.using(settings().DATABASE).order_by("-id")
    if name is not None:
        rows = rows.filter(name=name)
    if live:
        rows = rows.filter(completed_at=None)
    views = reading.read_views(list(rows.values_list("id", flat=True)[:limit]))[::-1]
    columns = [
        Column("batch"), Column("name", may_shrink=True), Column("state"),
        *(Column(name, is_number=True) for name in ("progress", "members", "dead", "round")),
    ]  # fmt: skip
    content = {"batches": [rendering.summarize(view) for view in views]}
    return CommandResult(content, [TableBlock(columns, list(map(_row, views)), "No batch.")])


def _row(view: BatchView) -> list[Cell]:
    is_bad = view.dead or view.error
    return [
        rendering.text_id(view), view.name, view.state, f"{view.progress:.1f} %",
        f"{view.members:,}", StyledText(f"{view.dead:,}", Tone.BAD if is_bad else Tone.PLAIN),
        f"{view.round:,}",
    ]  # fmt: skip
