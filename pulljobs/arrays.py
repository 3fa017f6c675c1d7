"""Arrays as PostgreSQL reads them from text: several times cheaper than element by element."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

Element = int | str | UUID | timedelta | datetime | None


def array(values: Iterable[Element]) -> str:
    """The array literal of these values, to be cast by the statement; datetimes must be aware."""
    values = list(values)
    # Tokens, events and NULLs repeat.
    texts = {value: _element(value) for value in set(values)}
    return "{" + ",".join([texts[value] for value in values]) + "}"


def byte_array(values: Iterable[bytes]) -> str:
    """The same of bytes."""
    return "{" + ",".join([f'"\\\\x{value.hex()}"' for value in values]) + "}"


def _element(value: Element) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, int):
        return str(value)
    if isinstance(value, UUID):
        return value.hex
    if isinstance(value, timedelta):
        return f"{value.total_seconds():f} s"
    return f'"{value.isoformat()}"'
