"""Name what keeps jobs from being done, or soon will, and what to do about it.

The exit code is 1 where something blocks, so that cron or a monitor may run it.
"""

from argparse import ArgumentParser
from typing import Any

from pulljobs.diagnosis.doctor import Finding, examine
from pulljobs.management.output_blocks import StyledText, TableBlock, Tone, text_columns
from pulljobs.management.parsing import span
from pulljobs.management.subcommands import EXIT_OK, EXIT_PROBLEM, CommandResult


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--snapshot-age", type=span, default="60", metavar="TIME",
        help="how old a transaction may be: 90, 5m (60)",
    )  # fmt: skip


def handle(**options: Any) -> CommandResult:
    found = examine(options["snapshot_age"])
    blocks = any(one.is_error for one in found)
    rows = [_row(one) for one in sorted(found, key=lambda one: not one.is_error)]
    table = TableBlock(text_columns("", "finding", "what it is"), rows)
    return CommandResult(
        {"findings": [one._asdict() for one in found]},
        [table] if rows else [StyledText("Nothing blocks.", Tone.GOOD)],
        EXIT_PROBLEM if blocks else EXIT_OK,
    )


def _row(one: Finding) -> list[StyledText | str]:
    tone = Tone.BAD if one.is_error else Tone.WARN
    return [StyledText("BLOCKED" if one.is_error else "note", tone), one.code, one.text]
