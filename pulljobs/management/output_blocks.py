"""What a command has to show, before anybody knows on what: words, facts and tables."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

STEERS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Tone(StrEnum):
    """Said by a colour beside the words, never by it alone."""

    PLAIN = ""
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    FAINT = "faint"
    TITLE = "title"


class StyledText(NamedTuple):
    text: str
    tone: Tone = Tone.PLAIN


Cell = str | StyledText


class Column(NamedTuple):
    title: str
    is_number: bool = False
    """Aligned to the right."""
    may_shrink: bool = False
    """What does not fit is cut off here, where there is an end of the line."""


@dataclass(frozen=True, slots=True)
class TableBlock:
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    empty: str = "None."
    """Said where there is no row."""


@dataclass(frozen=True, slots=True)
class FactsBlock:
    """Names and what they are."""

    rows: Sequence[tuple[str, Cell]]


Block = Cell | TableBlock | FactsBlock


def escape_cell(cell: Cell) -> StyledText:
    """As a terminal may have them: what steers it is spelled out, for it may come from anybody."""
    said = cell if isinstance(cell, StyledText) else StyledText(cell)
    return said._replace(text=STEERS.sub(lambda found: f"\\x{ord(found[0]):02x}", said.text))


def title(text: str) -> StyledText:
    return StyledText(text, Tone.TITLE)


def text_columns(*titles: str) -> list[Column]:
    """Columns of text, the last of which may shrink."""
    return [*map(Column, titles[:-1]), Column(titles[-1], may_shrink=True)]
