"""Connections to PostgreSQL, with a DSN from an option and a password from the environment.

Spark shows options in plans and logs and stores them in checkpoints, so a DSN with a password is
refused. libpq reads the password from PGPASSWORD or from the file that PGPASSFILE names.
`pulljobs.lake.spark` sets PGPASSWORD for drivers and executors. An operator who starts Spark sets
`spark.executorEnv.PGPASSWORD` in a properties file: Spark redacts it where it shows properties, but
PySpark passes properties from the code to the JVM as arguments, which `ps` shows to every user.
libpq reads other secrets, such as the passphrase of a client key, from the service file that
PGSERVICEFILE names.
"""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pulljobs.engine import adapters  # noqa: F401  registers them, before a connection is opened
from pulljobs.engine.connection_bounds import CONNECTION_BOUNDS, with_bounds
from pulljobs.engine.deadlines import Deadline
from pulljobs.engine.validation import encodable
from pulljobs.errors import ConfigurationError

USER_TIMEOUT: Final = 60_000
"""Milliseconds, more than elsewhere, because a COPY may wait for locks while it sends."""
APPLICATION_NAME: Final = "pulljobs on Spark"
SECRETS: Final = frozenset({"scram_client_key", "scram_server_key"}) | {
    option.keyword.decode() for option in pq.Conninfo.get_defaults() if option.dispchar == b"*"
}
"""Parameters that a DSN must not have: those that libpq marks as secret, and the SCRAM keys."""
SESSION_SETTINGS: Final = (
    "SELECT set_config('TimeZone', 'UTC', false), set_config('DateStyle', 'ISO', false)"
)
"""Statement that sets the settings of a session, in place of those of the database role.

They are not startup options, because some poolers refuse these. Poolers keep both settings for each
client.
"""


def refuse_unstorable(options: Mapping[str, str]) -> None:
    """Raise ConfigurationError for an option with a character that PostgreSQL does not store."""
    for name, value in options.items():
        if not encodable(value):
            raise ConfigurationError(
                f'Option "{name}" has a NUL character or half a surrogate pair: leave it out.'
            )


def parse_dsn(options: Mapping[str, str]) -> str:
    """Return the option `dsn`, with time limits and the name of the application added.

    Raise ConfigurationError if it is missing or malformed, or if it has a password or another
    secret.
    """
    if not (given := options.get("dsn", "").strip()):
        raise ConfigurationError(
            'Option "dsn" is missing: give it as "host=... dbname=... user=...", without password.'
        )
    try:
        parts: dict[str, Any] = conninfo_to_dict(given)
    except psycopg.ProgrammingError:
        # The message has neither the DSN nor the error of libpq: both may contain a password.
        raise ConfigurationError(
            'Option "dsn" is no connection string of PostgreSQL: give it as "host=... dbname=...".'
        ) from None
    if "password" in parts:
        raise ConfigurationError(
            'Option "dsn" must hold no password, because Spark shows options: set PGPASSWORD or '
            "PGPASSFILE instead, for executors as spark.executorEnv.PGPASSWORD in a properties "
            "file."
        )
    if secrets := sorted(SECRETS & parts.keys()):
        raise ConfigurationError(
            f'Option "dsn" must hold no {secrets[0]}, because Spark shows options: put it in the '
            "service file that PGSERVICEFILE names."
        )
    own = {"application_name": APPLICATION_NAME, "tcp_user_timeout": USER_TIMEOUT}
    return make_conninfo("", **with_bounds({**own, **parts}))


def connect(dsn: str) -> psycopg.Connection[Any]:
    """Open a psycopg connection in autocommit mode, with time zone UTC and encoding UTF-8.

    Raise ConfigurationError if that fails.
    """
    with ExitStack() as opened:
        try:
            connection = psycopg.connect(in_utf8(dsn), autocommit=True, prepare_threshold=None)
            opened.enter_context(closing(connection))
            with Deadline(connection, CONNECTION_BOUNDS["connect_timeout"]):
                connection.execute(SESSION_SETTINGS)
        except psycopg.OperationalError as error:
            raise ConfigurationError(describe_failure(dsn, error)) from None
        opened.pop_all()
    return connection


def in_utf8(dsn: str) -> str:
    return make_conninfo(dsn, client_encoding="UTF8")


def describe_failure(dsn: str, error: Exception) -> str:
    parts = conninfo_to_dict(dsn)
    where = f"{parts.get('dbname', '')!r} at {parts.get('host') or 'the local socket'}"
    reason = str(error).strip().splitlines()[-1].strip()
    return f"No connection to database {where}: {reason}"
