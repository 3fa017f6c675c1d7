"""The map of the code names files that exist and definitions that they have."""

import ast
import re
from typing import Final

import pytest

from example_project.state import BASE_DIR

PAGE: Final = (BASE_DIR / "docs" / "architecture.md").read_text("utf-8")
ROW: Final = re.compile(r"^\| ([^|]+) \| `([^`|]+)` \| (?:`(\w+)` )?\|$", re.MULTILINE)
CHANGES: Final = [
    match.groups() for match in ROW.finditer(PAGE.partition("## Where to change what")[2])
]
FORMS: Final = re.compile(r"^\| `(\w+)`(?:, `(\w+)`)? \| `([^`|]+)` \|", re.MULTILINE)


def definitions(path: str) -> set[str]:
    """Return the names that a module defines at its top level."""
    names: set[str] = set()
    for node in ast.parse((BASE_DIR / path).read_text("utf-8")).body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(node.name)
            case (
                ast.Assign(targets=[ast.Name() as target])
                | ast.AnnAssign(target=ast.Name() as target)
            ):
                names.add(target.id)
    return names


def test_the_table_covers_at_least_twelve_changes() -> None:
    assert len(CHANGES) >= 12


@pytest.mark.parametrize(("change", "path", "name"), CHANGES)
def test_the_file_of_a_change_exists_and_has_the_definition(
    change: str, path: str, name: str | None
) -> None:
    assert (BASE_DIR / path).is_file(), change
    assert name is None or name in definitions(path), change


def test_the_forms_of_a_job_are_defined_where_the_page_says() -> None:
    forms = FORMS.findall(PAGE)
    assert len(forms) >= 4
    for first, second, path in forms:
        assert {first, second} - {""} <= definitions(path), path
