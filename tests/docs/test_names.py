"""Modules, files and statements that the pages name exist."""

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

import pulljobs
from example_project.state import BASE_DIR
from tests.guides import pages

CHECK: Final = re.compile(r"pulljobs\.[EWI]\d{3}")
NO_MODULES: Final = {
    "pulljobs.job.id",  # attribute of a span
    "pulljobs.signal",  # attribute of a span
    "pulljobs.schema",  # property in Parquet files
    "pulljobs.view_dashboard",  # permission
    "pulljobs.yml",  # file that a guide has its reader make
}
NAMES: Final = [str(page.relative_to(BASE_DIR)) for page in pages()]
ROOTS: Final = (BASE_DIR, Path(pulljobs.__file__).parents[1])
"""Directories in which files that pages name may be: the checkout and the installed packages."""
FOLDERS: Final = ("pulljobs/", "pyspark_pulljobs/", "tests/", "benchmarks/", "example_project/")


def quoted(page: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", (BASE_DIR / page).read_text("utf-8"))


@pytest.mark.parametrize("page", NAMES)
def test_dotted_names_can_be_imported(page: str) -> None:
    for name in quoted(page):
        dotted = re.match(r"(?:pulljobs|pyspark_pulljobs)(?:\.\w+)+(?=\W|$)", name)
        if dotted and dotted[0] not in NO_MODULES and not CHECK.match(name):
            assert _exists(dotted[0]), dotted[0]


@pytest.mark.parametrize("page", NAMES)
def test_files_exist(page: str) -> None:
    for name in quoted(page):
        if name.startswith(FOLDERS) and re.fullmatch(r"[\w./-]+", name):
            assert any((root / name).exists() for root in ROOTS), name


@pytest.mark.parametrize("page", NAMES)
def test_statements_exist(page: str) -> None:
    assert [name for name in quoted(page) if name.endswith(".sql") and "/" not in name] == [
        name for name in quoted(page) if name in statement_files()
    ]


@cache
def statement_files() -> set[str]:
    return {path.name for root in ROOTS for path in root.glob("*pulljobs/**/*.sql")}


def _exists(dotted: str) -> bool:
    """Return True if the name is a module, or a module followed by names of attributes."""
    module, _dot, attributes = dotted, "", ""
    while module:
        try:
            value = import_module(module)
        except ModuleNotFoundError:
            module, _dot, last = module.rpartition(".")
            attributes = f"{last}.{attributes}".rstrip(".")
            continue
        for attribute in filter(None, attributes.split(".")):
            if not hasattr(value, attribute):
                return False
            value = getattr(value, attribute)
        return True
    return False
