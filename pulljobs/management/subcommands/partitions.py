"""List the partitions of messages and archive, with what is in them."""

from collections.abc import Iterator
from typing import Any

from pulljobs.admin.dashboard import figures
from pulljobs.conf import settings
from pulljobs.management.output_blocks import Block, Column, StyledText, TableBlock, Tone, title
from pulljobs.management.subcommands import CommandResult
from pulljobs.storage import blockers, health, partitions
from pulljobs.storage.health import PartitionSize


def handle(**options: Any) -> CommandResult:
    using = settings().DATABASE
    found = {
        table: health.sizes(using, partitions.existing(using, table))
        for table in partitions.PARTITIONED
    }
    crowded, not_owned = blockers.in_default(using), partitions.not_owned(using)
    content = {
        "partitions": {table: [_content(one) for one in sizes] for table, sizes in found.items()},
        "in_default": crowded,
        "in_default_cap": blockers.COUNT_CAP,
        "not_owned": not_owned,
    }
    return CommandResult(content, [*_lines(found, crowded), *_told(not_owned)])


def _content(one: PartitionSize) -> dict[str, Any]:
    return {
        "name": one.partition.name,
        "day": one.partition.day,
        "rows": one.rows,
        "bytes": one.bytes,
    }


def _lines(found: dict[str, list[PartitionSize]], crowded: dict[str, int]) -> Iterator[Block]:
    columns = [
        Column("day"),
        Column("rows, about", is_number=True),
        Column("size", is_number=True),
        Column("partition"),
    ]
    for table, sizes in found.items():
        yield title(table)
        rows = [
            [str(one.partition.day), f"{one.rows:,}", figures.size(one.bytes), one.partition.name]
            for one in sizes
        ]
        yield TableBlock(columns, rows, "It has none: run `pulljobs maintain`.")
        if count := crowded.get(table):
            rows_there = blockers.counted(count)
            yield StyledText(
                f"{table}_default holds {rows_there}: run `pulljobs maintain`.", Tone.BAD
            )


def _told(not_owned: list[str]) -> Iterator[Block]:
    if not_owned:
        tables = " and ".join(not_owned)
        yield StyledText(f"This role does not own {tables}: the owner makes and drops partitions.")
