"""List schedules with their next slot and the result of their last one."""

from argparse import ArgumentParser
from typing import Any, Final

from pulljobs import handlers
from pulljobs.conf import settings
from pulljobs.management.output_blocks import Cell, Column, StyledText, TableBlock, Tone
from pulljobs.management.parsing import whole_number
from pulljobs.management.subcommands import CommandResult
from pulljobs.schedules import declaring, reading
from pulljobs.schedules.models import Schedule
from pulljobs.storage import nodes

SHOWN: Final = 1_000


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--channel", help="only schedules of this channel")
    parser.add_argument(
        "--limit", type=whole_number(1), default=SHOWN, help="at most so many (%(default)s)"
    )


def handle(*, channel: str | None, limit: int, **options: Any) -> CommandResult:
    using = settings().DATABASE
    handlers.autodiscover()
    rows = Schedule.objects.using(using).defer("payload", "headers").order_by("name")
    shown = list((rows.filter(channel_name=channel) if channel else rows)[:limit])
    now, gone = nodes.clock(using), set(declaring.undeclared())
    content = [reading.summarize(row, now) | {"undeclared": row.name in gone} for row in shown]
    columns = [
        Column("schedule"), Column("channel"), Column("rule", may_shrink=True),
        Column("next slot"), Column("last slot"), Column("result"), Column("state"),
    ]  # fmt: skip
    cells = [_row(summary) for summary in content]
    return CommandResult({"schedules": content}, [TableBlock(columns, cells, "No schedule.")])


def _row(summary: dict[str, Any]) -> list[Cell]:
    state = summary["state"] + (", no longer declared" if summary["undeclared"] else "")
    tone = Tone.BAD if summary["state"] == "refused" else Tone.PLAIN
    return [
        summary["name"], summary["channel"], summary["rule"], summary["next_slot"] or "none",
        summary["last_slot"] or "none", summary["last_reason"] or "none", StyledText(state, tone),
    ]  # fmt: skip
