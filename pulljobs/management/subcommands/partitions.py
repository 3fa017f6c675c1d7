"""List the partitions of messages and archive, with their sizes."""

from collections.abc import Iterator
from typing import Any

from pulljobs.admin.dashboard import formats
from pulljobs.conf import settings
from pulljobs.management.output_blocks import Block, Column, StyledText, TableBlock, Tone, title
from pulljobs.management.subcommands import CommandResult
from pulljobs.storage import health, partitions
from pulljobs.storage.health import PartitionSize


def handle(**options: Any) -> CommandResult:
    using = settings().DATABASE
    tables = {
        table: health.sizes(using, partitions.existing(using, table))
        for table in partitions.PARTITIONED
    }
    crowded, not_owned = partitions.count_in_default(using), partitions.not_owned(using)
    content = {
        "partitions": {
            table: [_content(size) for size in sizes] for table, sizes in tables.items()
        },
        "in_default": crowded,
        "in_default_cap": partitions.COUNT_CAP,
        "not_owned": not_owned,
    }
    return CommandResult(content, [*_lines(tables, crowded), *_ownership(not_owned)])


def _content(size: PartitionSize) -> dict[str, Any]:
    return {
        "name": size.partition.name,
        "day": size.partition.day,
        "rows": size.rows,
        "bytes": size.bytes,
    }


def _lines(tables: dict[str, list[PartitionSize]], crowded: dict[str, int]) -> Iterator[Block]:
    columns = [
        Column("day"),
        Column("rows, about", is_number=True),
        Column("size", is_number=True),
        Column("partition"),
    ]
    for table, sizes in tables.items():
        yield title(table)
        rows = [
            [
                str(size.partition.day),
                f"{size.rows:,}",
                formats.size(size.bytes),
                size.partition.name,
            ]
            for size in sizes
        ]
        yield TableBlock(columns, rows, "No partitions: run `pulljobs maintain`.")
        if count := crowded.get(table):
            rows_there = partitions.format_count(count)
            yield StyledText(
                f"{table}_default holds {rows_there}: run `pulljobs maintain`.", Tone.BAD
            )


def _ownership(not_owned: list[str]) -> Iterator[Block]:
    if not_owned:
        tables = " and ".join(not_owned)
        yield StyledText(
            f"This role does not own {tables}: the owner creates and drops partitions."
        )
