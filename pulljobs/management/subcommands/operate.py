"""Continue actions that operators started on many jobs, as every worker does."""

from typing import Any, Final

from pulljobs import auditing
from pulljobs.conf import settings
from pulljobs.management.output_blocks import Block, Column, TableBlock
from pulljobs.management.subcommands import CommandResult
from pulljobs.models import AuditEntry
from pulljobs.progress import Progress, show_progress

SECONDS: Final = 1.0
"""Seconds of work between two reports of the progress."""


def handle(**options: Any) -> CommandResult:
    unfinished = AuditEntry.objects.using(settings().DATABASE).filter(finished_at=None)
    before = {entry.pk: entry for entry in unfinished}
    expected = [None if entry.is_more else entry.expected for entry in before.values()]
    total = None if None in expected else sum(filter(None, expected))
    with show_progress("operate", "jobs", total) as progress:
        while auditing.proceed(SECONDS):
            _report(progress, list(before))
    after = AuditEntry.objects.using(settings().DATABASE).in_bulk(list(before)).values()
    finished = [entry for entry in after if entry.finished_at is not None]
    return _result(finished, [entry for entry in after if entry.finished_at is None])


def _report(progress: Progress, entry_ids: list[int]) -> None:
    entries = AuditEntry.objects.using(settings().DATABASE).in_bulk(entry_ids).values()
    progress.advance(sum(entry.done for entry in entries) - progress.done)


def _result(finished: list[AuditEntry], others: list[AuditEntry]) -> CommandResult:
    """Return the result: audit entries that are finished, and those that another process does."""
    numbers = [Column(name, is_number=True) for name in ("done", "left alone")]
    columns = [Column("entry"), Column("act"), *numbers, Column("subject", may_shrink=True)]
    rows = [
        [
            str(entry),
            entry.get_act_display().lower(),
            f"{entry.done:,}",
            f"{entry.refused:,}",
            entry.subject,
        ]
        for entry in finished
    ]
    elsewhere = [str(entry) for entry in others]
    content = {
        "finished": [str(entry) for entry in finished],
        "others": elsewhere,
        "jobs": sum(entry.done for entry in finished),
    }
    blocks: list[Block] = []
    if finished or not others:
        blocks.append(TableBlock(columns, rows, "No action is unfinished."))
    if others:
        blocks.append(f"Another process continues {', '.join(elsewhere)}.")
    return CommandResult(content, blocks)
