"""Staging tables of atomic publishes: tasks store rows there, and the commit publishes them.

A row of the table is a chunk: arrays of its messages and of its bad rows, which publish_staged.sql
reads in place. Chunks of tasks that failed or ran twice are not read, because a commit names the
writers whose chunks it publishes. The table is unlogged, and is dropped when its publish ends.
"""

import json
import logging
import socket
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

import psycopg
from psycopg import sql

from pulljobs.engine.encodings import Blobs, array, byte_array
from pulljobs.engine.sql import statement
from pulljobs.errors import ConfigurationError
from pyspark_pulljobs import binary, drivers, ledger
from pyspark_pulljobs.rows import Chunk, Reject
from pyspark_pulljobs.session import Session

logger = logging.getLogger("pulljobs.lake")

PATIENCE: Final = timedelta(minutes=10)
"""Time without progress after which an unguarded publish of any host is abandoned."""
DROP_SECONDS: Final = 2
ARRAYS: Final = {
    "payloads": "bytea",
    "content_types": "text",
    "headers": "jsonb",
    "keys": "text",
    "priorities": "smallint",
    "client_message_ids": "text",
    "delays": "interval",
    "available_ats": "timestamptz",
}
"""Arrays of messages, with their types; an empty array stands for NULLs."""
BAD: Final = {"reasons": "text", "errors": "text", "rows": "text", "reject_payloads": "bytea"}
REJECTS: Final = tuple(BAD)
KINDS: Final = {**ARRAYS, "originals": "bigint", **BAD}
COUNTS: Final = {"writer": "uuid", "partition": "int", "messages": "int", "rejects": "int"}
STAND_IN: Final = "pulljobs_staged"
"""Placeholder for the name of the table in publish_staged.sql."""


class Staged(NamedTuple):
    """Number and sizes of a chunk in the table."""

    number: int
    messages: int
    rejects: int


def table(publish_id: int) -> sql.Identifier:
    return sql.Identifier(f"{STAND_IN}_{publish_id}")


def create(session: Session, publish_id: int) -> None:
    """Create the table if it is missing, in the transaction that opens and locks the publish."""
    name = table(publish_id)
    [(there,)] = session.connection.execute(
        "SELECT to_regclass(%s) IS NOT NULL", [name.as_string(session.connection)]
    )
    if there:
        return
    kinds = {name: f"{kind} NOT NULL" for name, kind in COUNTS.items()}
    kinds |= {name: f"{kind}[]" for name, kind in KINDS.items()}
    columns = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in kinds.items()
    )
    # Stored uncompressed: compression would take longer than reading the values twice.
    external = sql.SQL(", ").join(
        sql.SQL("ALTER {} SET STORAGE EXTERNAL").format(sql.Identifier(name)) for name in KINDS
    )
    made = sql.SQL(
        "CREATE UNLOGGED TABLE {} (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, {})"
    ).format(name, columns)
    try:
        session.connection.execute(made)
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"An atomic publish can't create its staging table ({error.diag.message_primary}): "
            "GRANT CREATE ON the SCHEMA to its role, or publish in mode chunked."
        ) from None
    session.connection.execute(sql.SQL("ALTER TABLE {} {}").format(name, external))


def copy(
    session: Session, publish_id: int, writer: UUID, partition: int, chunks: Iterable[Chunk]
) -> int:
    """Copy the chunks of a task into the table, all or none; return the number of rows."""
    into = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
        table(publish_id), sql.SQL(", ").join(map(sql.Identifier, (*COUNTS, *KINDS)))
    )
    rows = 0
    with session.connection.cursor() as cursor, cursor.copy(into) as copying:
        copying.write(binary.BEGINNING)
        for chunk in chunks:
            rows += chunk.rows
            copying.write(binary.row(_fields(writer, partition, chunk)))
        copying.write(binary.END)
    return rows


def staged(session: Session, publish_id: int, writers: Collection[UUID]) -> list[Staged]:
    """Read the chunks of these writers, in the order of partitions and rows."""
    chunks = session.connection.execute(
        sql.SQL(
            "SELECT number, messages, rejects FROM {} WHERE writer = ANY(%s) "
            "ORDER BY partition, number"
        ).format(table(publish_id)),
        [list(writers)],
    )
    return [Staged(*row) for row in chunks]


def publishing(publish_id: int) -> bytes:
    """Return the text of publish_staged.sql with the table of this publish."""
    return statement("publish_staged").replace(STAND_IN, f"{STAND_IN}_{publish_id}").encode()


def read(session: Session, publish_id: int, number: int, names: Iterable[str]) -> list[Any]:
    """Read these columns of a chunk."""
    query = sql.SQL("SELECT {} FROM {} WHERE number = %s").format(
        sql.SQL(", ").join(map(sql.Identifier, names)), table(publish_id)
    )
    [row] = session.connection.execute(query, [number], binary=True)
    return list(row)


def drop(session: Session, publish_id: int) -> None:
    """Drop the table; if a task is still writing to it, a later publish drops it."""
    try:
        with session.atomic():
            session.connection.execute(f"SET LOCAL lock_timeout = '{DROP_SECONDS}s'")
            session.connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table(publish_id)))
    except psycopg.errors.LockNotAvailable:
        logger.info(
            "The staging table of publish %d is in use: a later publish drops it.", publish_id
        )


def clean(session: Session) -> None:
    """Abort abandoned publishes, and drop staging tables that are left over."""
    with session.atomic():
        known = session.run("open_drivers", {"host": socket.gethostname()})
        gone = drivers.gone(driver for (driver,) in known)
        for (publish_id,) in session.run("leftovers", {"patience": PATIENCE, "gone": gone}):
            ledger.settle(session, publish_id, ledger.ABORTED, ledger.Tally())
            drop(session, publish_id)


def _fields(writer: UUID, partition: int, chunk: Chunk) -> Iterator[bytes]:
    """Encode a chunk in the order of COUNTS and KINDS."""
    counts = (writer, partition, chunk.count, len(chunk.rejects))
    yield from map(binary.value, COUNTS.values(), counts)
    columns = _columns(chunk)
    for name, kind in KINDS.items():
        yield binary.array(kind, columns[name]) if name in columns else binary.NULL


def _columns(chunk: Chunk) -> dict[str, Sequence[Any]]:
    columns: dict[str, Sequence[Any]] = {}
    if chunk.count:
        columns.update(zip(ARRAYS, chunk.columns.values(), strict=True))
        columns["headers"] = [json.dumps(item) if item else "{}" for item in columns["headers"]]
    if any(original is not None for original in chunk.originals):
        columns["originals"] = chunk.originals
    if chunk.rejects:
        columns.update(zip(BAD, zip(*chunk.rejects, strict=True), strict=True))
        columns["reject_payloads"] = [payload or b"" for payload in columns["reject_payloads"]]
    return columns


def rejects(bad: Sequence[Reject]) -> dict[str, str | Blobs]:
    """Return the arrays of bad rows, as parameters of reject_rows.sql."""
    reasons, errors, rows, payloads = zip(*bad, strict=True)
    return {
        "reasons": array(reasons),
        "errors": array(errors),
        "rows": array(rows),
        "reject_payloads": byte_array([payload or b"" for payload in payloads]),
    }
