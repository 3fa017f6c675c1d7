"""SQL statements by folder, each with the header of its file."""

from itertools import groupby
from pathlib import Path
from typing import Final

import pulljobs

PACKAGE: Final = Path(pulljobs.__file__).parent


def render_statements() -> str:
    """Render a section for each folder with SQL files, and in it the header of each file."""
    sections = []
    for folder, paths in groupby(find_statements(), key=lambda path: path.parent):
        sections.append(f"## {folder.relative_to(PACKAGE.parent)}\n")
        sections += [f"### {path.stem}\n\n```text\n{_read_header(path)}\n```\n" for path in paths]
    return "\n".join(sections)


def find_statements() -> list[Path]:
    """List the SQL files of the package by folder and name."""
    return sorted(PACKAGE.rglob("*.sql"), key=lambda path: (path.parent, path.name))


def _read_header(path: Path) -> str:
    lines = path.read_text("utf-8").splitlines()
    return "\n".join(line[3:] for line in lines if line.startswith("-- "))
