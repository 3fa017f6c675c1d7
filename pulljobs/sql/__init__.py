"""Every hot-path statement, one a file, for any psycopg connection; nothing of Django here."""

import re
from functools import cache
from importlib.resources import files
from typing import Final, LiteralString, NamedTuple

DATABASE_CHANNEL: Final = "pulljobs"
"""Where notify.sql sends, and waiters listen."""
_PLACEHOLDER: Final = re.compile(r"%\((\w+)\)s|%%")


@cache
def statement(name: str) -> LiteralString:
    """The text of `name.sql`, with psycopg's named placeholders."""
    return files(__name__).joinpath(f"{name}.sql").read_text("utf-8")


class Numbered(NamedTuple):
    """For `psycopg.RawCursor`, which needs not parse it."""

    text: bytes
    """With the server's own placeholders, $1 and so on."""
    names: tuple[str, ...]
    """Of the parameters, in that order."""


@cache
def numbered(text: str) -> Numbered:
    """The same statement. psycopg would parse one of more than 4 kB anew whenever it is run."""
    names: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"${names.setdefault(found[1], len(names) + 1)}" if found[1] else "%"

    return Numbered(_PLACEHOLDER.sub(number, text).encode(), tuple(names))
