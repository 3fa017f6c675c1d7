"""Statements of the hot path, one file each, in folders by subject, for any psycopg connection.

File names are unique over all folders: code names a statement by its file's name alone. An app that
extends pulljobs adds its own package of statements with `add_package`. Rows are named tuples whose
fields are the columns of the statement.
"""

import re
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final, LiteralString, Protocol

from pulljobs.engine.encodings import tuple_maker
from pulljobs.ids import EPOCH_MILLISECONDS

Row = Any
"""Row of a statement: a named tuple, whose fields mypy cannot know."""
Params = Mapping[str, Any]

DATABASE_CHANNEL: Final = "pulljobs"
"""PostgreSQL channel that notify.sql sends to and that waiters listen to."""
_packages: Final = [files(__name__)]
FRAGMENTS: Final = "fragments"
"""Folder of the parts that several statements have in common."""
_FRAGMENT: Final = re.compile(r"\$\{(\w+)\}")
_MARK: Final = re.compile(r" *-- (only|not) in (\w+(?:, \w+)*)$")
_CONSTANTS: Final = {
    "epoch_milliseconds": str(EPOCH_MILLISECONDS),
    "epoch_seconds": str(EPOCH_MILLISECONDS // 1_000),
}
_PLACEHOLDER: Final = re.compile(r"%\((\w+)\)s|%%")
_makers: dict[tuple[str, type | None], Callable[[Any], Row]] = {}


class Session(Protocol):
    """Connection on which claims run: Django's, or that of a stream of Spark."""

    def run(self, name: str, params: Params) -> list[Row]:
        """Run the statement of this name, in the open transaction if any, and return its rows."""

    def atomic(self) -> AbstractContextManager[object]:
        """Return a transaction, or a savepoint in the open one. An exception rolls it back."""


class ResultCursor(Protocol):
    """Cursor of psycopg that has run a statement."""

    @property
    def pgresult(self) -> Any: ...

    @property
    def description(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


@cache
def statement(name: str) -> LiteralString:
    """Return the text of `name.sql` with its fragments filled in, and placeholders of psycopg."""
    return select_lines(expand(_paths()[name].read_text("utf-8"), _packages[0] / FRAGMENTS), name)


def select_lines(text: LiteralString, name: str) -> LiteralString:
    """Return the lines of a text that belong to the statement `name`.

    Statements that differ in a few lines are written once, in a file that the files of the others
    include. In it, lines that end with `-- only in A, B` belong to the statements A and B, and
    lines that end with `-- not in A, B` to all statements but A and B.
    """
    lines = (line for line in text.splitlines() if _is_line_of(line, name))
    return "\n".join(_MARK.sub("", line) for line in lines)


def _is_line_of(line: str, name: str) -> bool:
    mark = _MARK.search(line)
    return mark is None or (mark[1] == "only") == (name in mark[2].split(", "))


def expand(text: str, fragments: Traversable) -> LiteralString:
    """Replace each `${name}` in a text by the constant, statement or fragment of that name.

    A statement is filled in without its header. `fragments` is the folder of fragments.
    """

    def fill_in(match: re.Match[str]) -> str:
        if match[1] in _CONSTANTS:
            return _CONSTANTS[match[1]]
        file = _paths().get(match[1]) or fragments / f"{match[1]}.sql"
        lines = file.read_text("utf-8").splitlines()
        body = "\n".join(line for line in lines if not line.startswith("--"))
        return expand(body, fragments)

    return _FRAGMENT.sub(fill_in, text)


def names() -> list[str]:
    """Return the names of all statements of all packages, sorted."""
    return sorted(_paths())


def add_package(package: str) -> None:
    """Make the `.sql` files of a package and of its folders known as statements."""
    if (root := files(package)) not in _packages:
        _packages.append(root)
        _paths.cache_clear()


@cache
def _paths() -> dict[str, Traversable]:
    paths: dict[str, Traversable] = {}
    for root in _packages:
        for folder in (root, *(entry for entry in root.iterdir() if entry.is_dir())):
            if folder.name != FRAGMENTS:
                paths |= _files(folder)
    return paths


def _files(folder: Traversable) -> dict[str, Traversable]:
    return {
        file.name.removesuffix(".sql"): file
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    }


def bound(text: str, params: Params) -> tuple[bytes, list[Any]]:
    """Return a statement and its parameters in the form that `psycopg.RawCursor` sends as it is.

    Other cursors of psycopg parse a statement of more than 4 kB each time they run it.
    """
    numbered, names = _numbered(text)
    return numbered, [params[name] for name in names]


@cache
def _numbered(text: str) -> tuple[bytes, tuple[str, ...]]:
    """Return a statement with PostgreSQL's placeholders ($1, ...), and their names in order."""
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"${names.setdefault(match[1], len(names) + 1)}" if match[1] else "%"

    return _PLACEHOLDER.sub(number, text).encode(), tuple(names)


def fetch_rows(name: str, cursor: ResultCursor, kind: type | None = None) -> list[Row]:
    """Return the rows of a statement that a cursor has run, as named tuples.

    `kind` is their class, by default one with the columns of the statement. The fields of another
    class must be these columns in their order, else TypeError is raised.
    """
    result = cursor.pgresult
    if result is None or not result.nfields:
        return []
    # `description` builds a list of columns, which takes longer than a claim's rows: ask once.
    make = _makers.get((name, kind)) or _learn_columns(name, cursor, kind)
    return list(map(make, cursor.fetchall()))


def make_row_type(columns: Sequence[str]) -> Any:
    """Return a named tuple class with these fields."""
    return namedtuple("Row", columns)


def _learn_columns(name: str, cursor: ResultCursor, kind: type | None) -> Callable[[Any], Row]:
    columns = [column.name for column in cursor.description]
    row: Any = make_row_type(columns) if kind is None else kind
    if list(row._fields) != columns:
        raise TypeError(f"{name}.sql returns {columns}, but {row.__name__} has {row._fields}.")
    make = _makers[name, kind] = tuple_maker(row)
    return make
