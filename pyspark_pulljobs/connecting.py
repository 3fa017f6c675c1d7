"""Connections from options: the DSN says where, the environment says the password.

Spark shows options in plans and logs and keeps them in checkpoints, so a DSN with a password is
refused: libpq finds it in PGPASSWORD or in the file that PGPASSFILE names. `pulljobs.lake.spark`
puts PGPASSWORD where drivers and executors look. Those who start Spark themselves set
`spark.executorEnv.PGPASSWORD`, in a file of properties: Spark redacts the name where it shows
properties, but arguments, which PySpark makes of what a JVM is started with, are shown by `ps` to
every user. Other secrets, such as the passphrase of a client's key, are found in the file of
services that PGSERVICEFILE names.
"""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from typing import Any, Final

import psycopg
from adbc_driver_postgresql import dbapi
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pulljobs.errors import ConfigurationError

CONNECT_SECONDS: Final = 10
NAME: Final = "pulljobs on Spark"
SECRETS: Final = frozenset({"scram_client_key", "scram_server_key"}) | {
    option.keyword.decode() for option in pq.Conninfo.get_defaults() if option.dispchar == b"*"
}
"""No option may hold them: what libpq hides in forms, and keys that do for a password."""
IN_SESSION: Final = (
    "SELECT set_config('TimeZone', 'UTC', false), set_config('DateStyle', 'ISO', false)"
)
"""As readers expect them, whatever the role is set to.

Not as options of the connection: not every pooler takes those. These two it keeps for its client.
"""


def dsn_of(options: Mapping[str, str]) -> str:
    """The option `dsn`, checked and completed; ConfigurationError tells what is wrong with it."""
    if not (given := options.get("dsn", "").strip()):
        raise ConfigurationError(
            'Option "dsn" is missing: give it as "host=... dbname=... user=...", without password.'
        )
    try:
        parts: dict[str, Any] = conninfo_to_dict(given)
    except psycopg.ProgrammingError:
        # Neither the text nor what libpq says of it: they may hold a password.
        raise ConfigurationError(
            'Option "dsn" is no connection string of PostgreSQL: give it as "host=... dbname=...".'
        ) from None
    if "password" in parts:
        raise ConfigurationError(
            'Option "dsn" must hold no password, for Spark shows options: set PGPASSWORD or '
            "PGPASSFILE instead, for executors as spark.executorEnv.PGPASSWORD in a file of "
            "properties."
        )
    if secrets := sorted(SECRETS & parts.keys()):
        raise ConfigurationError(
            f'Option "dsn" must hold no {secrets[0]}, for Spark shows options: keep it with the '
            "service, in the file that PGSERVICEFILE names."
        )
    parts.setdefault("connect_timeout", CONNECT_SECONDS)
    parts.setdefault("application_name", NAME)
    return make_conninfo("", **parts)


def connect(dsn: str) -> psycopg.Connection[Any]:
    """A session in UTC and UTF-8. ConfigurationError, in one line, when there is none to be had."""
    with ExitStack() as opened:
        try:
            connection = psycopg.connect(_in_utf8(dsn), autocommit=True, prepare_threshold=None)
            opened.enter_context(closing(connection))
            connection.execute(IN_SESSION)
        except psycopg.OperationalError as error:
            raise ConfigurationError(_refused(dsn, error)) from None
        opened.pop_all()
    return connection


def connect_arrow(dsn: str) -> dbapi.Connection:
    """The same by ADBC: results come as Arrow batches."""
    with ExitStack() as opened:
        try:
            connection = dbapi.connect(_in_utf8(dsn), autocommit=True)
            opened.enter_context(closing(connection))
            with closing(connection.cursor()) as cursor:
                cursor.execute(IN_SESSION)
                cursor.fetchall()
        except dbapi.Error as error:
            raise ConfigurationError(_refused(dsn, error)) from None
        opened.pop_all()
    return connection


def _in_utf8(dsn: str) -> str:
    return make_conninfo(dsn, client_encoding="UTF8")


def _refused(dsn: str, error: Exception) -> str:
    parts = conninfo_to_dict(dsn)
    where = f"{parts.get('dbname', '')!r} at {parts.get('host') or 'the local socket'}"
    reason = str(error).strip().splitlines()[-1].strip()
    return f"No connection to database {where}: {reason}"
