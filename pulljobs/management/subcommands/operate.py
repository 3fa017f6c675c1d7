"""Go on with what operators asked to be done to many jobs, as every worker does."""

from typing import Any, Final

from pulljobs import auditing
from pulljobs.conf import settings
from pulljobs.management.output_blocks import Block, Column, TableBlock
from pulljobs.management.subcommands import CommandResult
from pulljobs.models import AuditEntry
from pulljobs.progress import Progress, shown

SECONDS: Final = 1.0
"""Of work between two looks at how far it is."""


def handle(**options: Any) -> CommandResult:
    unfinished = AuditEntry.objects.using(settings().DATABASE).filter(finished_at=None)
    before = {entry.pk: entry for entry in unfinished}
    expected = [None if one.is_more else one.expected for one in before.values()]
    total = None if None in expected else sum(filter(None, expected))
    with shown("operate", "jobs", total) as progress:
        while auditing.proceed(SECONDS):
            _look(progress, list(before))
    after = AuditEntry.objects.using(settings().DATABASE).in_bulk(list(before)).values()
    finished = [entry for entry in after if entry.finished_at is not None]
    return _answer(finished, [entry for entry in after if entry.finished_at is None])


def _look(progress: Progress, entry_ids: list[int]) -> None:
    entries = AuditEntry.objects.using(settings().DATABASE).in_bulk(entry_ids).values()
    progress.advance(sum(one.done for one in entries) - progress.done)


def _answer(finished: list[AuditEntry], others: list[AuditEntry]) -> CommandResult:
    """The others are those that another process is at."""
    numbers = [Column(name, is_number=True) for name in ("done", "left alone")]
    columns = [Column("entry"), Column("act"), *numbers, Column("subject", may_shrink=True)]
    rows = [
        [str(one), one.get_act_display().lower(), f"{one.done:,}", f"{one.refused:,}", one.subject]
        for one in finished
    ]
    elsewhere = [str(entry) for entry in others]
    content = {
        "finished": [str(entry) for entry in finished],
        "others": elsewhere,
        "jobs": sum(one.done for one in finished),
    }
    blocks: list[Block] = []
    if finished or not others:
        blocks.append(TableBlock(columns, rows, "Nothing was left to be done."))
    if others:
        blocks.append(f"Another process is at {', '.join(elsewhere)}.")
    return CommandResult(content, blocks)
