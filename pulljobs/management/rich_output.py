"""Blocks for a terminal, by rich."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from rich.console import Console, Group, OverflowMethod, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from pulljobs.management.output_blocks import (
    Block,
    Cell,
    FactsBlock,
    StyledText,
    TableBlock,
    Tone,
    escape_cell,
)

STYLES: Final[Mapping[Tone, str]] = {
    Tone.PLAIN: "",
    Tone.GOOD: "green",
    Tone.WARN: "yellow",
    Tone.BAD: "bold red",
    Tone.FAINT: "bright_black",
    Tone.TITLE: "bold",
}
HEAD: Final = "bold cyan"


def show(console: Console, blocks: Iterable[Block]) -> None:
    console.print(Group(*drawn(blocks)), soft_wrap=False)


def drawn(blocks: Iterable[Block], *, folds: bool = True) -> Iterator[RenderableType]:
    """`folds`: what is too long for a line goes on in the next, else it is cut off."""
    for number, block in enumerate(blocks):
        if isinstance(block, TableBlock):
            yield _table(block, folds) if block.rows else text(StyledText(block.empty, Tone.FAINT))
        elif isinstance(block, FactsBlock):
            yield _facts(block)
        else:
            if number and escape_cell(block).tone is Tone.TITLE:
                yield Text()
            yield text(block, folds)


def text(cell: Cell, folds: bool = True) -> Text:
    said = escape_cell(cell)
    overflow: OverflowMethod = "fold" if folds else "ellipsis"
    return Text(said.text, style=STYLES[said.tone], overflow=overflow, no_wrap=not folds)


def _table(table: TableBlock, folds: bool) -> RichTable:
    made = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=HEAD)
    for column in table.columns:
        made.add_column(
            column.title,
            justify="right" if column.is_number else "left",
            no_wrap=not column.may_shrink,
            overflow="fold" if folds and column.may_shrink else "ellipsis",
        )
    for row in table.rows:
        made.add_row(*(text(cell, folds) for cell in row))
    return made


def _facts(facts: FactsBlock) -> RichTable:
    made = RichTable.grid(padding=(0, 2, 0, 0))
    made.add_column(style="cyan", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in facts.rows:
        made.add_row(name, text(value))
    return made
