"""The tables of the docs are those of the code."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_tables", DOCS / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_are_those_of_the_code(tables: ModuleType) -> None:
    """Run `python docs/tables.py` where this fails."""
    marked = [page for page in DOCS.rglob("*.md") if "<!-- table:" in page.read_text("utf-8")]
    assert len(marked) >= 3
    for page in marked:
        text = page.read_text("utf-8")
        assert tables.filled(text) == text, page.name
