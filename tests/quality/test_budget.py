"""Functions that fit in a glance, files of about a page."""

import ast
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

from example_project.state import BASE_DIR

SOURCES = sorted(
    path for path in (BASE_DIR / "pulljobs").rglob("*.py") if path.parent.name != "migrations"
)


def test_functions_are_short() -> None:
    lengths = {where: length for path in SOURCES for where, length in function_lengths(path)}
    _assert_within(lengths, ninth_decile=20, longest=50)
    assert median(lengths.values()) <= 7


def test_files_are_short() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in SOURCES}
    _assert_within(lengths, ninth_decile=300, longest=450)


def _assert_within(lengths: dict[str, int], ninth_decile: int, longest: int) -> None:
    too_long = {where: length for where, length in lengths.items() if length > longest}
    assert not too_long
    top = sorted(lengths.items(), key=lambda item: -item[1])[:10]
    assert quantiles(lengths.values(), n=10)[-1] <= ninth_decile, top


def function_lengths(path: Path) -> Iterator[tuple[str, int]]:
    """Lines from a body's first statement to its last, the docstring not counted."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            yield f"{path.name}:{node.lineno} {node.name}", lines
