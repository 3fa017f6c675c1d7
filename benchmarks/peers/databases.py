"""A database a peer, filled once; each round works on a copy of it."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from django.db import connection
from psycopg import sql
from psycopg.conninfo import make_conninfo

from benchmarks.peers.peer import Peer

PREFIX: Final = "peers_"
CATALOG: Final = "postgres"

Connection = psycopg.Connection[tuple[object, ...]]


def parameters(database: str) -> dict[str, str]:
    """For libpq, of the server that the project uses."""
    params = connection.get_connection_params()
    given = {name: params.get(name) for name in ("host", "port", "user", "password")}
    return {name: str(value) for name, value in given.items() if value} | {"dbname": database}


def variables(database: str) -> dict[str, str]:
    """The same for a process, as PG* variables."""
    names = {"dbname": "database"}
    return {
        f"PG{names.get(name, name).upper()}": value for name, value in parameters(database).items()
    }


def connect(database: str = CATALOG) -> Connection:
    return psycopg.connect(make_conninfo(**parameters(database)), autocommit=True)


def name_of(peer: Peer, suffix: str) -> str:
    return PREFIX + re.sub(r"\W+", "_", peer.name) + f"_{suffix}"


def create(name: str, template: str = "template0") -> None:
    """A new one in its place, with what the template has."""
    drop(name)
    with connect() as catalog:
        catalog.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )


def drop(name: str) -> None:
    with connect() as catalog:
        catalog.execute(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        )


@contextmanager
def copied(template: str) -> Iterator[str]:
    """The name of a copy, dropped at the end with whoever is still connected."""
    name = f"{template}_copy"
    create(name, template)
    try:
        yield name
    finally:
        drop(name)


def exists(name: str) -> bool:
    with connect() as catalog:
        found = catalog.execute("SELECT FROM pg_database WHERE datname = %s", [name])
        return found.fetchone() is not None


def settle(name: str) -> None:
    """Statistics for the planner, and no vacuum left to do."""
    with connect(name) as session:
        session.execute("VACUUM ANALYZE")


def position(session: Connection) -> str:
    """In the write-ahead log of the server, all of it."""
    return str(_one(session, "SELECT pg_current_wal_insert_lsn()"))


def wal_since(session: Connection, start: str) -> float:
    """Bytes."""
    return float(str(_one(session, f"SELECT (pg_current_wal_insert_lsn() - '{start}')::float8")))


def left(session: Connection, peer: Peer) -> int:
    return int(str(_one(session, peer.left)))


def _one(session: Connection, query: str) -> object:
    row = session.execute(query.encode()).fetchone()
    return None if row is None else row[0]


@contextmanager
def held_snapshot(database: str) -> Iterator[float]:
    """Nothing that is deleted inside can be vacuumed; yields when it began."""
    with connect(database) as holder:
        holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT pg_current_snapshot()")
        yield time.monotonic()
        holder.execute("COMMIT")
