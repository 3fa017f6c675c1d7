"""Index of all modules except those of single tests, from the first lines of their docstrings."""

import ast
from pathlib import Path
from typing import Final

import pulljobs
from generators.markdown import render_table, to_cell

TOP: Final = Path(pulljobs.__file__).parents[1]
PACKAGES: Final = ("pulljobs", "pyspark_pulljobs", "example_project", "benchmarks", "tests")


def render_modules() -> str:
    """Render a section for each folder of modules: its purpose, and that of each module."""
    inits = [path for package in PACKAGES for path in sorted((TOP / package).rglob("__init__.py"))]
    sections = [_render_folder(path.parent) for path in inits if path.parent.name != "migrations"]
    return "\n\n".join(filter(None, sections))


def _render_folder(folder: Path) -> str:
    """Render the section of a folder, or nothing for a folder that only has single tests."""
    modules = [path for path in sorted(folder.glob("*.py")) if _is_listed(path)]
    purposes = {path.name: _read_purpose(path) for path in modules}
    rows = [(f"`{name}`", purpose) for name, purpose in purposes.items() if purpose]
    table = render_table(["module", "contents"], rows) if rows else ""
    parts = list(filter(None, [_read_purpose(folder / "__init__.py"), table]))
    return "\n\n".join([f"## {folder.relative_to(TOP).as_posix()}", *parts]) if parts else ""


def _is_listed(path: Path) -> bool:
    return path.name not in ("__init__.py", "conftest.py") and not path.name.startswith("test_")


def _read_purpose(path: Path) -> str:
    """Return the first line of a module's docstring, or nothing if it has none."""
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return to_cell(docstring.partition("\n")[0])
