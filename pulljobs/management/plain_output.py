"""Blocks as lines of plain text: for pipes, files, cron and terminals that can't do more."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pulljobs.management.output_blocks import (
    Block,
    Column,
    FactsBlock,
    StyledText,
    TableBlock,
    Tone,
    escape_cell,
)

GAP: Final = "  "


def lines(blocks: Iterable[Block]) -> Iterator[str]:
    """Nothing is cut off: who reads them may be a program."""
    for number, block in enumerate(blocks):
        if isinstance(block, TableBlock):
            yield from _table(block)
        elif isinstance(block, FactsBlock):
            yield from _facts(block)
        else:
            yield from _words(escape_cell(block), is_first=not number)


def _words(said: StyledText, *, is_first: bool) -> Iterator[str]:
    if said.tone is Tone.TITLE and not is_first:
        yield ""
    yield said.text


def _table(table: TableBlock) -> Iterator[str]:
    if not table.rows:
        yield table.empty
        return
    rows = [[escape_cell(cell).text for cell in row] for row in table.rows]
    head = [column.title.upper() for column in table.columns]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        yield _aligned(row, table.columns, widths)


def _aligned(row: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    cells = [
        text.rjust(width) if column.is_number else text.ljust(width)
        for text, column, width in zip(row, columns, widths, strict=True)
    ]
    return GAP.join(cells).rstrip()


def _facts(facts: FactsBlock) -> Iterator[str]:
    width = max((len(name) for name, _value in facts.rows), default=0)
    for name, value in facts.rows:
        first, *more = escape_cell(value).text.splitlines() or [""]
        yield f"{name.ljust(width)}{GAP}{first}".rstrip()
        for line in more:
            yield f"{' ' * width}{GAP}{line}"
