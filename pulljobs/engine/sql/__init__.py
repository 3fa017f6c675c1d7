"""Statements of the hot path, one file each, in folders by subject, for any psycopg connection.

File names are unique over all folders: code names a statement by its file's name alone. An app that
extends pulljobs adds its own package of statements with `add_package`.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final, LiteralString

DATABASE_CHANNEL: Final = "pulljobs"
"""PostgreSQL channel that notify.sql sends to and that waiters listen to."""
_packages: Final = [__name__]
_PLACEHOLDER: Final = re.compile(r"%\((\w+)\)s|%%")


@cache
def statement(name: str) -> LiteralString:
    """Return the text of `name.sql`, with psycopg's named placeholders."""
    return _paths()[name].read_text("utf-8")


def names() -> list[str]:
    """Return the names of all statements, sorted."""
    return sorted(_paths())


def add_package(package: str) -> None:
    """Make the `.sql` files of a package known, those directly in it and in its folders."""
    if package not in _packages:
        _packages.append(package)
        _paths.cache_clear()


@cache
def _paths() -> dict[str, Traversable]:
    paths: dict[str, Traversable] = {}
    for package in _packages:
        root = files(package)
        for folder in (root, *(entry for entry in root.iterdir() if entry.is_dir())):
            paths |= _files(folder)
    return paths


def _files(folder: Traversable) -> dict[str, Traversable]:
    return {
        file.name.removesuffix(".sql"): file
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    }


def bound(text: str, params: Mapping[str, Any]) -> tuple[bytes, list[Any]]:
    """Return a statement and its parameters in the form that `psycopg.RawCursor` sends as it is.

    Other cursors of psycopg parse a statement of more than 4 kB each time they run it.
    """
    numbered, names = _numbered(text)
    return numbered, [params[name] for name in names]


@cache
def _numbered(text: str) -> tuple[bytes, tuple[str, ...]]:
    """Return the statement with placeholders of the server ($1, ...), and their names in order."""
    names: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"${names.setdefault(found[1], len(names) + 1)}" if found[1] else "%"

    return _PLACEHOLDER.sub(number, text).encode(), tuple(names)
