"""Every hot-path statement, one a file, for any psycopg connection; nothing of Django here."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, LiteralString

DATABASE_CHANNEL: Final = "pulljobs"
"""Where notify.sql sends, and waiters listen."""
_PLACEHOLDER: Final = re.compile(r"%\((\w+)\)s|%%")


@cache
def statement(name: str) -> LiteralString:
    """The text of `name.sql`, with psycopg's named placeholders."""
    return files(__name__).joinpath(f"{name}.sql").read_text("utf-8")


def bound(text: str, params: Mapping[str, Any]) -> tuple[bytes, list[Any]]:
    """A statement and its parameters for `psycopg.RawCursor`, which needs not parse it.

    psycopg would parse one of more than 4 kB anew whenever it is run.
    """
    numbered, names = _numbered(text)
    return numbered, [params[name] for name in names]


@cache
def _numbered(text: str) -> tuple[bytes, tuple[str, ...]]:
    """With the server's own placeholders, $1 and so on, and the names of what they stand for."""
    names: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"${names.setdefault(found[1], len(names) + 1)}" if found[1] else "%"

    return _PLACEHOLDER.sub(number, text).encode(), tuple(names)
