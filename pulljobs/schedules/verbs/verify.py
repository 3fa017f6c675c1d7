"""Check that each slot has one record, and each fired slot its message; exit code 1 if not.

It only reads, and may run in production.
"""

from argparse import ArgumentParser
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from pulljobs.management.output_blocks import Block, StyledText, Tone
from pulljobs.management.parsing import parse_time
from pulljobs.management.subcommands import EXIT_OK, EXIT_PROBLEM, CommandResult
from pulljobs.schedules import verifying
from pulljobs.schedules.verifying import INVARIANTS, VerifiedSlots

LISTED: Final = 20


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--since", type=parse_time, metavar="TIME", help="begin of the window (a day ago)"
    )
    parser.add_argument("--until", type=parse_time, metavar="TIME", help="end of the window (now)")


def handle(*, since: datetime | None, until: datetime | None, **options: Any) -> CommandResult:
    result = verifying.verify(since, until)
    content = {
        "ok": not result.broken,
        "schedules": result.schedules,
        "slots": result.slots,
        "broken": {
            name: {"promise": INVARIANTS[name], "count": len(slots), "slots": slots[:LISTED]}
            for name, slots in result.broken.items()
        },
    }
    exit_code = EXIT_PROBLEM if result.broken else EXIT_OK
    return CommandResult(content, list(_lines(result)), exit_code)


def _lines(result: VerifiedSlots) -> Iterator[Block]:
    yield f"Schedules checked: {result.schedules:,}. Slots checked: {result.slots:,}."
    for name, slots in result.broken.items():
        listed = ", ".join(slots[:LISTED])
        text = f"BROKEN {name}: {INVARIANTS[name]} Slots that break it: {len(slots):,} ({listed})."
        yield StyledText(text, Tone.BAD)
    if not result.broken:
        yield StyledText("Every slot is accounted for.", Tone.GOOD)
