"""Detection of statements that fail because a migration was not applied."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import DEFAULT_DB_ALIAS, ProgrammingError
from psycopg import errors

from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError
from pulljobs.hooks import app_labels


def advice(error: BaseException) -> str:
    """Return what to do if a missing table or column caused the error, else an empty text."""
    if not isinstance(error.__cause__, errors.UndefinedTable | errors.UndefinedColumn):
        return ""
    using = settings().DATABASE
    command = "run manage.py migrate"
    if using != DEFAULT_DB_ALIAS:  # Without the app, it would create the project's tables there.
        command += f" APP --database {using} for each of {', '.join(sorted(app_labels))}"
    lacking = str(error).partition("\n")[0]
    return f"The database lacks a migration ({lacking}): {command}"


@contextmanager
def required() -> Iterator[None]:
    """Turn an error about a missing migration into ConfigurationError, which no loop retries."""
    try:
        yield
    except ProgrammingError as error:
        if text := advice(error):
            raise ConfigurationError(text) from error
        raise
