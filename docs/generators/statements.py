"""Reference of the SQL statements, from the headers of their files."""

import re
from itertools import groupby
from pathlib import Path
from typing import Final

import pulljobs

PACKAGE: Final = Path(pulljobs.__file__).parent
FIELD: Final = re.compile(
    r"^((?:Events?|Parameters|Returns|Locks|Index|Full)\b[^:]*):", re.MULTILINE
)


def render_statements() -> str:
    """Render a section for each folder with SQL files, and in it one for each file."""
    sections = []
    for folder, paths in groupby(find_statements(), key=lambda path: path.parent):
        sections.append(f"## {folder.relative_to(PACKAGE.parent)}\n")
        sections += [f"### {path.stem}\n\n{render_header(path)}\n" for path in paths]
    return "\n".join(sections)


def find_statements() -> list[Path]:
    """List the SQL files of the package by folder and name, with the fragments that they share."""
    return sorted(PACKAGE.rglob("*.sql"), key=lambda path: (path.parent, path.name))


def render_header(path: Path) -> str:
    """Render the header of a file: a paragraph, then a list of its fields."""
    lines = path.read_text("utf-8").splitlines()
    header = "\n".join(line[3:] for line in lines if line.startswith("-- "))
    about, *fields = FIELD.split(header)
    items = [
        f"- **{_escape(name)}**: {_escape(text)}"
        for name, text in zip(fields[::2], fields[1::2], strict=True)
    ]
    return "\n".join([_escape(about), "", *items])


def _escape(text: str) -> str:
    """Put a text on one line, and escape what Markdown reads as markup outside of code."""
    parts = " ".join(text.split()).split("`")
    parts[::2] = [re.sub(r"([*<\[\]_])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)
