"""Databases of the compared queues: each is filled once, and each round works on a copy."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from django.db import connection
from psycopg import sql
from psycopg.conninfo import make_conninfo

from benchmarks.peers.peer import Installable, Peer

PREFIX: Final = "peers_"
CATALOG: Final = "postgres"

Connection = psycopg.Connection[tuple[object, ...]]


def parameters(database: str) -> dict[str, str]:
    """Return the libpq parameters of a database on the project's server."""
    params = connection.get_connection_params()
    given = {name: params.get(name) for name in ("host", "port", "user", "password")}
    return {name: str(value) for name, value in given.items() if value} | {"dbname": database}


def variables(database: str) -> dict[str, str]:
    """Return the connection parameters as PG* environment variables."""
    names = {"dbname": "database"}
    return {
        f"PG{names.get(name, name).upper()}": value for name, value in parameters(database).items()
    }


def connect(database: str = CATALOG) -> Connection:
    """Connect to a database on the project's server, with autocommit."""
    return psycopg.connect(make_conninfo(**parameters(database)), autocommit=True)


def name_of(peer: Installable, suffix: str) -> str:
    """Return the name of a database of a compared queue, such as that with suffix `empty`."""
    return PREFIX + re.sub(r"\W+", "_", peer.name) + f"_{suffix}"


def create(name: str, template: str = "template0") -> None:
    """Create a database from a template. A database of that name is dropped first."""
    drop(name)
    with connect() as catalog:
        catalog.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )


def drop(name: str) -> None:
    """Drop a database, with its connections, if it exists."""
    with connect() as catalog:
        catalog.execute(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        )


@contextmanager
def copied(template: str) -> Iterator[str]:
    """Yield the name of a copy, which is dropped at the end with all its connections."""
    name = f"{template}_copy"
    create(name, template)
    try:
        yield name
    finally:
        drop(name)


def exists(name: str) -> bool:
    """Return True if there is a database of this name."""
    with connect() as catalog:
        rows = catalog.execute("SELECT FROM pg_database WHERE datname = %s", [name])
        return rows.fetchone() is not None


def settle(name: str) -> None:
    """Vacuum and analyze a database, so that autovacuum has nothing to do in a measurement."""
    with connect(name) as session:
        session.execute("VACUUM ANALYZE")


def position(session: Connection) -> str:
    """Return the insert position in the write-ahead log of the whole server."""
    return str(_value(session, "SELECT pg_current_wal_insert_lsn()"))


def wal_since(session: Connection, start: str) -> float:
    """Return the bytes of write-ahead log since a position."""
    return float(str(_value(session, f"SELECT (pg_current_wal_insert_lsn() - '{start}')::float8")))


def count_left(session: Connection, peer: Peer) -> int:
    """Return how many published jobs are not done, by the tables of the compared queue."""
    return int(str(_value(session, peer.left)))


def _value(session: Connection, query: str) -> object:
    row = session.execute(query.encode()).fetchone()
    return None if row is None else row[0]


@contextmanager
def held_snapshot(database: str) -> Iterator[float]:
    """Hold a snapshot, so that rows deleted inside cannot be vacuumed. Yield its start time."""
    with connect(database) as holder:
        holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT pg_current_snapshot()")
        yield time.monotonic()
        holder.execute("COMMIT")
