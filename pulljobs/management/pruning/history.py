"""Drop expired days of messages and archive, and other history that is kept as long."""

from argparse import ArgumentParser
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from pulljobs import operating
from pulljobs.admin.dashboard import formats
from pulljobs.conf import SETTING, settings
from pulljobs.errors import ConfigurationError
from pulljobs.management import job_actions
from pulljobs.management.output_blocks import Cell, Column, StyledText, TableBlock, Tone
from pulljobs.management.parsing import parse_duration
from pulljobs.management.subcommands import CommandResult
from pulljobs.operating import OldPartition
from pulljobs.progress import show_progress
from pulljobs.storage import health
from pulljobs.storage.health import PartitionSize

LEAST: Final = timedelta(days=1)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--older-than", type=parse_duration, metavar="TIME",
        help=f"minimum age, such as 30d, at least a day ({SETTING}['RETENTION'])",
    )  # fmt: skip
    job_actions.add_confirmation(parser, "delete")


def handle(**options: Any) -> CommandResult:
    age = _age(options["older_than"])
    candidates = operating.prunable(age)
    sizes = health.sizes(settings().DATABASE, [old.partition for old in candidates])
    going = [size for old, size in zip(candidates, sizes, strict=True) if not old.stays]
    if options["dry_run"]:
        return _result(candidates, sizes, None)
    job_actions.require_confirmation(yes=options["yes"])
    if not going:
        return _result(candidates, sizes, [])
    question = f"Drop {_count(going)}, {formats.size(_bytes(going))}?"
    if not job_actions.confirm(question, yes=options["yes"]):
        return _result(candidates, sizes, None)
    with show_progress("prune history", "partitions", len(candidates)) as progress:
        steps = operating.prune(age, lambda _partition: progress.advance(1))
        dropped = [partition.name for partition in steps if partition]
    return _result(candidates, sizes, dropped)


def _age(given: timedelta | None) -> timedelta:
    age = settings().RETENTION if given is None else given
    if age is None:
        raise ConfigurationError(
            f"The age is missing: give --older-than, or set {SETTING}['RETENTION']."
        )
    if age < LEAST:
        raise ConfigurationError("History is dropped by days: --older-than must be 1d or more.")
    return age


def _count(sizes: Sequence[PartitionSize]) -> str:
    return "1 partition" if len(sizes) == 1 else f"{len(sizes)} partitions"


def _bytes(sizes: Sequence[PartitionSize]) -> int:
    return sum(size.bytes for size in sizes)


def _result(
    candidates: list[OldPartition], sizes: list[PartitionSize], dropped: list[str] | None
) -> CommandResult:
    """Return the output of the command: the old partitions, each with its result.

    `sizes` has the sizes of `candidates`, in their order. `dropped` has the names of the dropped
    partitions, or is None for a preview.
    """
    columns = [
        Column("partition"),
        Column("rows, about", is_number=True),
        Column("size", is_number=True),
        Column("what becomes of it", may_shrink=True),
    ]
    rows: list[list[Cell]] = [
        [
            old.partition.name,
            f"{size.rows:,}",
            formats.size(size.bytes),
            _fate(old, dropped),
        ]
        for old, size in zip(candidates, sizes, strict=True)
    ]
    going = [
        size
        for old, size in zip(candidates, sizes, strict=True)
        if (not old.stays if dropped is None else old.partition.name in dropped)
    ]
    verb = "would be dropped" if dropped is None else "dropped"
    sums = StyledText(f"{_count(going)} {verb}, {formats.size(_bytes(going))}.")
    content = {
        "dropped": dropped or [],
        "partitions": [
            {
                "partition": old.partition.name,
                "rows": size.rows,
                "bytes": size.bytes,
                "stays": old.stays or None,
            }
            for old, size in zip(candidates, sizes, strict=True)
        ],
    }
    return CommandResult(
        content, [TableBlock(columns, rows, "Nothing is old enough."), *([sums] if rows else [])]
    )


def _fate(old: OldPartition, dropped: list[str] | None) -> StyledText:
    if old.partition.name in (dropped or ()):
        return StyledText("dropped", Tone.GOOD)
    if old.stays:
        return StyledText(f"stays: {old.stays}", Tone.WARN)
    if dropped is None:
        return StyledText("would be dropped")
    return StyledText("not dropped: it is needed again, or already gone", Tone.WARN)
