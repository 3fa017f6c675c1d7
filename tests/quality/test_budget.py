"""Budget of size: functions fit in a glance, files on about a page."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median, quantiles

import pytest

from example_project.state import BASE_DIR

SOURCES = sorted(
    path
    for package in ("pulljobs", "pyspark_pulljobs")
    for path in (BASE_DIR / package).rglob("*.py")
    if path.parent.name != "migrations"
)
COUNTED = (ast.FunctionDef, ast.AsyncFunctionDef)


def test_functions_fit_in_a_glance() -> None:
    lengths = {place: length for path in SOURCES for place, length in function_lengths(path)}
    assert_within(lengths, middle=4, ninth_decile=12, longest=40)


def test_files_are_about_a_page() -> None:
    lengths = {place_of(path): len(path.read_text().splitlines()) for path in SOURCES}
    assert len(lengths) == len(SOURCES), "two files share a key, so one of them escapes"
    assert_within(lengths, middle=95, ninth_decile=215, longest=470)


@pytest.mark.parametrize("lengths", [[1] * 9 + [41], [1, 1, 5, 5, 5], [1] * 8 + [13, 13]])
def test_a_size_above_the_budget_fails(lengths: list[int]) -> None:
    with pytest.raises(AssertionError):
        assert_within(
            dict(zip("abcdefghij", lengths, strict=False)), middle=4, ninth_decile=12, longest=40
        )


def assert_within(
    lengths: Mapping[str, int], *, middle: int, ninth_decile: int, longest: int
) -> None:
    top = sorted(lengths.items(), key=lambda item: -item[1])[:10]
    assert top[0][1] <= longest, top
    assert quantiles(lengths.values(), n=10)[-1] <= ninth_decile, top
    assert median(lengths.values()) <= middle


def place_of(path: Path) -> str:
    """Return the path relative to the repository, because many files have the same name."""
    return path.relative_to(BASE_DIR).as_posix()


def function_lengths(path: Path) -> Iterator[tuple[str, int]]:
    """Yield each function of a file with the number of lines of its body, docstring excluded."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, COUNTED):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            yield f"{place_of(path)}:{node.lineno} {node.name}", lines
