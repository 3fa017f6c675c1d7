"""Rendering of output blocks with colours for a terminal, by the package rich."""

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
    escape_lines,
)

STYLES: Final[Mapping[Tone, str]] = {
    Tone.PLAIN: "",
    Tone.GOOD: "green",
    Tone.WARN: "yellow",
    Tone.BAD: "bold red",
    Tone.FAINT: "bright_black",
    Tone.TITLE: "bold",
}
HEADING_STYLE: Final = "bold cyan"


class PipeConsole(Console):
    """Console that raises BrokenPipeError, and does not end the process, at a closed pipe."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def print_blocks(console: Console, blocks: Iterable[Block]) -> None:
    """Print blocks to a console of the package rich."""
    console.print(Group(*render_blocks(blocks)), soft_wrap=False)


def render_blocks(blocks: Iterable[Block], *, folds: bool = True) -> Iterator[RenderableType]:
    """Render blocks for the package rich.

    Text that exceeds the width of the terminal continues on the next line. It is cut in columns
    that may not shrink and, without `folds`, in lines and in all columns of tables.
    """
    for number, block in enumerate(blocks):
        if isinstance(block, TableBlock):
            yield (
                _render_table(block, folds)
                if block.rows
                else render_text(StyledText(block.empty, Tone.FAINT))
            )
        elif isinstance(block, FactsBlock):
            yield _render_facts(block)
        else:
            if number and escape_cell(block).tone is Tone.TITLE:
                yield Text()
            yield render_text(block, folds)


def render_text(cell: Cell, folds: bool = True) -> Text:
    """Render a cell or line in the colour of its tone, with control characters escaped."""
    return _style(escape_cell(cell), folds)


def _style(text: StyledText, folds: bool = True) -> Text:
    overflow: OverflowMethod = "fold" if folds else "ellipsis"
    return Text(text.text, style=STYLES[text.tone], overflow=overflow, no_wrap=not folds)


def _render_table(table: TableBlock, folds: bool) -> RichTable:
    grid = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=HEADING_STYLE)
    for column in table.columns:
        grid.add_column(
            column.title,
            justify="right" if column.is_number else "left",
            no_wrap=not column.may_shrink,
            overflow="fold" if folds and column.may_shrink else "ellipsis",
        )
    for row in table.rows:
        grid.add_row(*(render_text(cell, folds) for cell in row))
    return grid


def _render_facts(facts: FactsBlock) -> RichTable:
    grid = RichTable.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts.rows:
        grid.add_row(name, _style(escape_lines(value)))
    return grid
