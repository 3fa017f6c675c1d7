"""Index of the modules of the packages, from the first lines of their docstrings."""

import ast
from pathlib import Path
from typing import Final

import pulljobs
import pyspark_pulljobs
from generators.markdown import render_table, to_cell

PACKAGES: Final = (pulljobs, pyspark_pulljobs)
TOP: Final = Path(pulljobs.__file__).parents[1]


def render_modules() -> str:
    """Render a section for each folder of modules: its purpose, and that of each module."""
    roots = [Path(package.__file__).parent for package in PACKAGES]
    folders = sorted(path.parent for root in roots for path in root.rglob("__init__.py"))
    sections = [_render_folder(folder) for folder in folders if folder.name != "migrations"]
    return "\n\n".join(sections)


def _render_folder(folder: Path) -> str:
    modules = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
    rows = [(f"`{path.name}`", _read_purpose(path)) for path in modules]
    table = render_table(["module", "contents"], rows) if rows else ""
    name = folder.relative_to(TOP).as_posix()
    return "\n\n".join([f"## {name}", _read_purpose(folder / "__init__.py"), table]).strip()


def _read_purpose(path: Path) -> str:
    """Return the first line of a module's docstring, or nothing if it has none."""
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return to_cell(docstring.partition("\n")[0])
