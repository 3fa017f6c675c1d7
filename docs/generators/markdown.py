"""Markdown tables."""

from collections.abc import Iterable, Sequence


def render_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render a table. Cells are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def to_cell(text: str) -> str:
    """Put a text on one line, with its pipes escaped."""
    return " ".join(text.split()).replace("|", "\\|")
