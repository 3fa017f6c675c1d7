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
    lacking = str(error).partition("\n")[0]
    return f"The database lacks a migration ({lacking}): {how_to_migrate(settings().DATABASE)}"


def how_to_migrate(using: str) -> str:
    """Return the advice to run the command that creates the tables in a database."""
    if using == DEFAULT_DB_ALIAS:
        return "run manage.py migrate"
    # Without the app, it would create the project's tables there.
    apps = ", ".join(sorted(app_labels))
    return f"run manage.py migrate APP --database {using} for each of {apps}"


@contextmanager
def required() -> Iterator[None]:
    """Turn an error about a missing migration into ConfigurationError, which no loop retries."""
    try:
        yield
    except ProgrammingError as error:
        if text := advice(error):
            raise ConfigurationError(text) from error
        raise
