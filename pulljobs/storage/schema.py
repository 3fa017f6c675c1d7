"""Advice about statements that failed because a migration is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import DEFAULT_DB_ALIAS, ProgrammingError
from psycopg import errors

from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError


def advice(error: BaseException) -> str:
    """Return advice about a missing migration, or an empty text for another error."""
    if not isinstance(error.__cause__, errors.UndefinedTable | errors.UndefinedColumn):
        return ""
    using = settings().DATABASE
    flag = "" if using == DEFAULT_DB_ALIAS else f" --database {using}"
    lacking = str(error).partition("\n")[0]
    return f"The database lacks a migration ({lacking}): run manage.py migrate{flag}"


@contextmanager
def required() -> Iterator[None]:
    """Raise ConfigurationError if a migration is missing, so that no caller tries again."""
    try:
        yield
    except ProgrammingError as error:
        if text := advice(error):
            raise ConfigurationError(text) from error
        raise
