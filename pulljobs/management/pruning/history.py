"""Drop days of messages and archive that are old enough, and what else is kept as long."""

from argparse import ArgumentParser
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from pulljobs import operating
from pulljobs.admin.dashboard import figures
from pulljobs.conf import SETTING, settings
from pulljobs.errors import ConfigurationError
from pulljobs.management import operator
from pulljobs.management.output_blocks import Cell, Column, StyledText, TableBlock, Tone
from pulljobs.management.parsing import span
from pulljobs.management.pruning import add_common
from pulljobs.management.subcommands import CommandResult
from pulljobs.operating import Old
from pulljobs.progress import shown
from pulljobs.storage import health
from pulljobs.storage.health import PartitionSize

LEAST: Final = timedelta(days=1)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--older-than", type=span, metavar="TIME",
        help=f"such as 30d, a day or more ({SETTING}['RETENTION'])",
    )  # fmt: skip
    add_common(parser)


def handle(**options: Any) -> CommandResult:
    age = _age(options["older_than"])
    found = operating.prunable(age)
    sizes = health.sizes(settings().DATABASE, [one.partition for one in found])
    going = [size for one, size in zip(found, sizes, strict=True) if not one.stays]
    if options["dry_run"]:
        return _answer(found, sizes, None)
    operator.must_be_there(yes=options["yes"])
    if not going:
        return _answer(found, sizes, [])
    question = f"Drop {len(going)} partitions, {figures.size(_bytes(going))}?"
    if not operator.agrees(question, yes=options["yes"]):
        return _answer(found, sizes, None)
    with shown("prune history", "partitions", len(found)) as progress:
        steps = operating.prune(age, lambda _partition: progress.advance(1))
        dropped = [one.name for one in steps if one]
    return _answer(found, sizes, dropped)


def _age(told: timedelta | None) -> timedelta:
    age = settings().RETENTION if told is None else told
    if age is None:
        raise ConfigurationError(f"How old? Give --older-than, or set {SETTING}['RETENTION'].")
    if age < LEAST:
        raise ConfigurationError("History is dropped by days: --older-than must be 1d or more.")
    return age


def _bytes(sizes: Sequence[PartitionSize]) -> int:
    return sum(one.bytes for one in sizes)


def _answer(
    found: list[Old], sizes: list[PartitionSize], dropped: list[str] | None
) -> CommandResult:
    """None: nothing was tried."""
    columns = [
        Column("partition"),
        Column("rows, about", is_number=True),
        Column("size", is_number=True),
        Column("what becomes of it", may_shrink=True),
    ]
    rows: list[list[Cell]] = [
        [
            one.partition.name,
            f"{size.rows:,}",
            figures.size(size.bytes),
            _fate(one, dropped),
        ]
        for one, size in zip(found, sizes, strict=True)
    ]
    going = [
        size
        for one, size in zip(found, sizes, strict=True)
        if (not one.stays if dropped is None else one.partition.name in dropped)
    ]
    word = "would be dropped" if dropped is None else "dropped"
    sums = StyledText(f"{len(going)} partitions {word}, {figures.size(_bytes(going))}.")
    content = {
        "dropped": dropped or [],
        "partitions": [
            {
                "partition": one.partition.name,
                "rows": size.rows,
                "bytes": size.bytes,
                "stays": one.stays or None,
            }
            for one, size in zip(found, sizes, strict=True)
        ],
    }
    return CommandResult(
        content, [TableBlock(columns, rows, "Nothing is old enough."), *([sums] if rows else [])]
    )


def _fate(one: Old, dropped: list[str] | None) -> StyledText:
    if one.partition.name in (dropped or ()):
        return StyledText("dropped", Tone.GOOD)
    if one.stays:
        return StyledText(f"stays: {one.stays}", Tone.WARN)
    if dropped is None:
        return StyledText("would be dropped")
    return StyledText("not dropped: it is needed since, or gone already", Tone.WARN)
