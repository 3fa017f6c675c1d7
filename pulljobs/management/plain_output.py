"""Rendering of output blocks as plain text, for pipes, files, cron and simple terminals."""

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
    escape_lines,
)

GAP: Final = "  "


def render_lines(blocks: Iterable[Block]) -> Iterator[str]:
    """Render blocks as lines of text. They are never shortened, since a program may read them."""
    for number, block in enumerate(blocks):
        if isinstance(block, TableBlock):
            yield from _render_table(block)
        elif isinstance(block, FactsBlock):
            yield from _render_facts(block)
        else:
            yield from _render_text(escape_cell(block), is_first=not number)


def _render_text(text: StyledText, *, is_first: bool) -> Iterator[str]:
    if text.tone is Tone.TITLE and not is_first:
        yield ""
    yield text.text


def _render_table(table: TableBlock) -> Iterator[str]:
    if not table.rows:
        yield escape_cell(table.empty).text
        return
    rows = [[escape_cell(cell).text for cell in row] for row in table.rows]
    head = [column.title.upper() for column in table.columns]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        yield _align(row, table.columns, widths)


def _align(row: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    cells = [
        text.rjust(width) if column.is_number else text.ljust(width)
        for text, column, width in zip(row, columns, widths, strict=True)
    ]
    return GAP.join(cells).rstrip()


def _render_facts(facts: FactsBlock) -> Iterator[str]:
    width = max((len(name) for name, _value in facts.rows), default=0)
    for name, value in facts.rows:
        first, *more = escape_lines(value).text.split("\n")
        yield f"{name.ljust(width)}{GAP}{first}".rstrip()
        for line in more:
            yield f"{' ' * width}{GAP}{line}"
