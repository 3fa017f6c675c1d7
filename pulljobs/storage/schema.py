"""Detection of missing migrations and privileges, foreign owners, and settings of the session."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from django.db import DEFAULT_DB_ALIAS, ProgrammingError
from django.db import Error as DatabaseError
from psycopg import errors

from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError
from pulljobs.hooks import app_labels
from pulljobs.storage.statements import query

HOW_TO_GRANT: Final = "run what `pulljobs grants` prints as the owner"
HOW_TO_WRITE: Final = (
    "connect to the primary, and end default_transaction_read_only of the server, database and role"
)
_READS: Final = """
SELECT
    current_setting('transaction_read_only')::boolean AS is_read_only,
    pg_is_in_recovery() AS is_standby,
    has_table_privilege(to_regclass('pulljobs_job'), 'UPDATE') AS has_privilege
"""
HOW_TO_ISOLATE: Final = "set default_transaction_isolation to 'read committed' for the role"
_HOW_TO_FORMAT: Final = (
    "set datestyle to 'ISO' and intervalstyle to 'postgres' for the role or the database"
)
UNUSABLE: Final = (ProgrammingError, NotImplementedError)
"""Errors for which `advice` may have a text and that no repetition mends.

A database that may only be read raises InternalError until a failover ends.
"""
_OUT_OF_REACH: Final = """
SELECT nspname AS schema
FROM pg_class
JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE relname = 'pulljobs_job' AND to_regclass('pulljobs_job') IS NULL
"""
_NOT_OWNED: Final = """
SELECT relname
FROM pg_class
WHERE relkind IN ('r', 'p')
    AND starts_with(relname, 'pulljobs_')
    AND pg_table_is_visible(oid)
    AND NOT pg_has_role(relowner, 'USAGE')
ORDER BY relname
"""


def not_owned(using: str) -> list[str]:
    """Return the tables of pulljobs that the connection's role does not own, sorted by name."""
    return [row.relname for row in query(using, _NOT_OWNED)]


def default_isolation(using: str) -> str:
    """Return the isolation level of statements outside of transactions, such as "serializable"."""
    [row] = query(using, "SHOW default_transaction_isolation")
    return str(row.default_transaction_isolation)


def may_only_read(using: str) -> bool:
    """Return True on a standby, or if the session refuses writes for which it has privileges."""
    [row] = query(using, _READS)
    return bool(row.is_read_only and (row.is_standby or row.has_privilege))


def advice(error: BaseException) -> str:
    """Return what to do if a table, a column, a privilege or the right to write is missing.

    It also advises on the isolation level of the session, and on formats that psycopg does not
    read, such as `intervalstyle`. Return an empty text for other errors.
    """
    lacking = str(error).partition("\n")[0]
    if isinstance(error, NotImplementedError) and "Style '" in lacking:
        return f"The session has formats that psycopg does not read ({lacking}): {_HOW_TO_FORMAT}"
    if isinstance(error.__cause__, errors.ReadOnlySqlTransaction):
        return f"The session may only read ({lacking}): {HOW_TO_WRITE}"
    # Not "canceling statement due to conflict with recovery", on a standby.
    is_conflict = isinstance(error.__cause__, errors.SerializationFailure)
    if is_conflict and lacking.startswith("could not serialize"):
        return f"The isolation level is not READ COMMITTED ({lacking}): {HOW_TO_ISOLATE}"
    if isinstance(error.__cause__, errors.InsufficientPrivilege):
        return f"The role lacks a privilege ({lacking}): use another role, or {HOW_TO_GRANT}"
    if not isinstance(error.__cause__, errors.UndefinedTable | errors.UndefinedColumn):
        return ""
    return explain_missing(settings().DATABASE, f"The database lacks a migration ({lacking})")


def explain_missing(using: str, problem: str) -> str:
    """Return the problem and what to do, or that the role does not see the existing tables."""
    with suppress(DatabaseError):
        for row in query(using, _OUT_OF_REACH):
            return (
                f"The role does not see the tables of pulljobs in the schema {row.schema!r}: "
                f"{HOW_TO_GRANT}, set its search_path, or, for tables in another schema, "
                f"{how_to_migrate(using)}"
            )
    return f"{problem}: {how_to_migrate(using)}"


def how_to_migrate(using: str) -> str:
    """Return the advice to run the command that creates the tables in a database."""
    if using == DEFAULT_DB_ALIAS:
        return "run manage.py migrate"
    # Without the app, it would create the project's tables there.
    apps = ", ".join(sorted(app_labels))
    return f"run manage.py migrate APP --database {using} for each of {apps}"


@contextmanager
def required() -> Iterator[None]:
    """Turn errors of the block that say what the database lacks into ConfigurationError.

    Its text is the `advice`. No loop of a worker retries after a ConfigurationError.
    """
    try:
        yield
    except UNUSABLE as error:
        if text := advice(error):
            raise ConfigurationError(text) from error
        raise
