"""Find what stops jobs now or soon, and show what to do about it.

The exit code is 1 if a finding blocks jobs, so that cron or a monitor may run it.
"""

from argparse import ArgumentParser
from typing import Any

from pulljobs.diagnosis.database_checks import Finding
from pulljobs.diagnosis.doctor import examine
from pulljobs.management.output_blocks import StyledText, TableBlock, Tone, text_columns
from pulljobs.management.parsing import parse_duration
from pulljobs.management.subcommands import EXIT_OK, EXIT_PROBLEM, CommandResult


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--snapshot-age", type=parse_duration, default="60", metavar="TIME",
        help="age from which an open transaction is reported: 90, 5m (60)",
    )  # fmt: skip


def handle(**options: Any) -> CommandResult:
    findings = examine(options["snapshot_age"])
    blocks = any(finding.is_error for finding in findings)
    rows = [_row(finding) for finding in sorted(findings, key=lambda finding: not finding.is_error)]
    table = TableBlock(text_columns("", "finding", "what it is"), rows)
    return CommandResult(
        {"findings": [finding._asdict() for finding in findings]},
        [table] if rows else [StyledText("Nothing blocks.", Tone.GOOD)],
        EXIT_PROBLEM if blocks else EXIT_OK,
    )


def _row(finding: Finding) -> list[StyledText | str]:
    tone = Tone.BAD if finding.is_error else Tone.WARN
    return [StyledText("BLOCKED" if finding.is_error else "note", tone), finding.code, finding.text]
