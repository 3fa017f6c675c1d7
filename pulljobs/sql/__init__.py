"""Every hot-path statement, one a file, for any psycopg connection; nothing of Django here."""

from functools import cache
from importlib.resources import files
from typing import Final, LiteralString

DATABASE_CHANNEL: Final = "pulljobs"
"""Where notify.sql sends, and waiters listen."""


@cache
def statement(name: str) -> LiteralString:
    """The text of `name.sql`, with psycopg's named placeholders."""
    return files(__name__).joinpath(f"{name}.sql").read_text("utf-8")
