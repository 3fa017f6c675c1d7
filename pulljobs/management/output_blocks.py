"""Output of a command for people, before it is rendered: lines of text, facts and tables."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

CONTROL_CHARACTERS: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)
"""Characters that control a terminal, change the direction of text, or are invisible."""
NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Tone(StrEnum):
    """Meaning of a text, which a terminal shows by a colour."""

    PLAIN = ""
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    FAINT = "faint"
    TITLE = "title"


class StyledText(NamedTuple):
    """Line or cell of text with its tone."""

    text: str
    tone: Tone = Tone.PLAIN


Cell = str | StyledText


class Column(NamedTuple):
    """Column of a table: its heading, its alignment, and whether it may be narrowed."""

    title: str
    is_number: bool = False
    """True if cells are aligned to the right."""
    may_shrink: bool = False
    """True if cells are shortened or folded when a row exceeds the width of the terminal."""


@dataclass(frozen=True, slots=True)
class TableBlock:
    """Table with headings of columns, or the text `empty` if it has no rows."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    empty: str = "None."
    """Text in place of a table without rows."""


@dataclass(frozen=True, slots=True)
class FactsBlock:
    """Names and values, with one pair per line."""

    rows: Sequence[tuple[str, Cell]]


Block = Cell | TableBlock | FactsBlock


def escape_cell(cell: Cell) -> StyledText:
    """Return the text of a cell with control characters escaped as `\\x1b`, `\\n` or `\\u202e`.

    Cells contain text from clients and handlers, which must not control the terminal or forge rows.
    """
    text = cell if isinstance(cell, StyledText) else StyledText(cell)
    return text._replace(text=CONTROL_CHARACTERS.sub(_escape, text.text))


def escape_lines(cell: Cell) -> StyledText:
    """Return the text of a cell with control characters escaped, except for its line breaks."""
    text = cell if isinstance(cell, StyledText) else StyledText(cell)
    lines = [escape_cell(line).text for line in text.text.split("\n")]
    return text._replace(text="\n".join(lines))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if match[0] in NAMED:
        return NAMED[match[0]]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def title(text: str) -> StyledText:
    """Return the line that heads a section of the output."""
    return StyledText(text, Tone.TITLE)


def text_columns(*titles: str) -> list[Column]:
    """Return columns of text with these headings. The last one is narrowed if need be."""
    return [*map(Column, titles[:-1]), Column(titles[-1], may_shrink=True)]
