"""Output of a command before it is rendered: styled text, facts and tables."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

CONTROL_CHARACTERS: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)
"""Characters that control a terminal, change the direction of text, or are invisible."""


class Tone(StrEnum):
    """Meaning of a text, shown as a colour in addition to the text itself."""

    PLAIN = ""
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    FAINT = "faint"
    TITLE = "title"


class StyledText(NamedTuple):
    """Text with a tone."""

    text: str
    tone: Tone = Tone.PLAIN


Cell = str | StyledText


class Column(NamedTuple):
    """Heading and alignment of a column."""

    title: str
    is_number: bool = False
    """True if cells are aligned to the right."""
    may_shrink: bool = False
    """True if cells are shortened or folded when a row exceeds the width of the terminal."""


@dataclass(frozen=True, slots=True)
class TableBlock:
    """Table with a heading, or a text if it has no rows."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    empty: str = "None."
    """Text in place of a table without rows."""


@dataclass(frozen=True, slots=True)
class FactsBlock:
    """Named values, one a line."""

    rows: Sequence[tuple[str, Cell]]


Block = Cell | TableBlock | FactsBlock


def escape_cell(cell: Cell) -> StyledText:
    """Return the text of a cell with control characters escaped as `\\x1b` or `\\u202e`.

    Cells contain text from clients and handlers, which must not control the terminal.
    """
    text = cell if isinstance(cell, StyledText) else StyledText(cell)
    return text._replace(text=CONTROL_CHARACTERS.sub(_escape, text.text))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def title(text: str) -> StyledText:
    """Create the title of a section."""
    return StyledText(text, Tone.TITLE)


def text_columns(*titles: str) -> list[Column]:
    """Create columns of text. The last one is cut where the terminal is too narrow."""
    return [*map(Column, titles[:-1]), Column(titles[-1], may_shrink=True)]
