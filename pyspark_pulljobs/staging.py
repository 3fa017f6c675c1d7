"""Staging tables of atomic publishes: tasks store their rows there, and the commit publishes them.

A row of the table is a chunk: arrays of its messages and of its bad rows, which publish_staged.sql
reads in place. The commit names the writers, which are attempts of tasks, whose chunks it
publishes. So chunks of attempts that failed or ran twice are not read. The table is unlogged, and
is dropped when its publish ends.
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
from pyspark_pulljobs import binary, drivers, publish_ledger
from pyspark_pulljobs.chunks import Chunk
from pyspark_pulljobs.database_session import Session
from pyspark_pulljobs.rows import Reject

logger = logging.getLogger("pulljobs.lake")

PATIENCE: Final = timedelta(minutes=10)
"""Time without progress after which an unguarded publish of any host is abandoned."""
DROP_SECONDS: Final = 2
"""Time to wait for tasks that still write to a table that is to be dropped."""
MESSAGE_ARRAYS: Final = {
    "payloads": "bytea",
    "content_types": "text",
    "headers": "jsonb",
    "keys": "text",
    "priorities": "smallint",
    "client_message_ids": "text",
    "delays": "interval",
    "available_ats": "timestamptz",
    "costs": "int",
}
"""Types of the arrays of messages, by column. An empty array stands for NULLs."""
REJECT_ARRAYS: Final = {
    "reasons": "text",
    "errors": "text",
    "rows": "text",
    "reject_payloads": "bytea",
}
"""Types of the arrays of bad rows, by column, in the order of the fields of `Reject`."""
REJECT_COLUMNS: Final = tuple(REJECT_ARRAYS)
ARRAY_TYPES: Final = {**MESSAGE_ARRAYS, "originals": "bigint", **REJECT_ARRAYS}
SCALAR_TYPES: Final = {"writer": "uuid", "partition": "int", "messages": "int", "rejects": "int"}
TABLE_NAME: Final = "pulljobs_staged"
"""Placeholder for the table in publish_staged.sql, and the beginning of the table's name."""


class StagedChunk(NamedTuple):
    """Chunk in a staging table, with its numbers of messages and of bad rows."""

    number: int
    """Primary key in the staging table."""
    messages: int
    rejects: int


def identify_table(publish_id: int) -> sql.Identifier:
    """Return the name of the staging table of a publish."""
    return sql.Identifier(f"{TABLE_NAME}_{publish_id}")


def create(session: Session, publish_id: int) -> None:
    """Create the staging table if it is missing, in the current transaction.

    The caller has locked the row of the publish in this transaction. Raise ConfigurationError if
    the role may not create tables.
    """
    name = identify_table(publish_id)
    [(exists,)] = session.execute(
        "SELECT to_regclass(%s) IS NOT NULL", [name.as_string(session.connection)]
    )
    if exists:
        return
    kinds = {name: f"{kind} NOT NULL" for name, kind in SCALAR_TYPES.items()}
    kinds |= {name: f"{kind}[]" for name, kind in ARRAY_TYPES.items()}
    columns = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in kinds.items()
    )
    # Values are not compressed, because compression would take longer than to read them twice.
    external = sql.SQL(", ").join(
        sql.SQL("ALTER {} SET STORAGE EXTERNAL").format(sql.Identifier(name))
        for name in ARRAY_TYPES
    )
    create_table = sql.SQL(
        "CREATE UNLOGGED TABLE {} (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, {})"
    ).format(name, columns)
    try:
        session.execute(create_table)
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"An atomic publish can't create its staging table ({error.diag.message_primary}): "
            "GRANT CREATE ON the SCHEMA to its role, or publish in mode chunked."
        ) from None
    session.execute(sql.SQL("ALTER TABLE {} {}").format(name, external))


def copy(
    session: Session, publish_id: int, writer: UUID, partition: int, chunks: Iterable[Chunk]
) -> int:
    """Copy all chunks of a task to the staging table, or none. Return the number of their rows.

    `writer` identifies this attempt of the task, and `partition` is the number of its partition.
    """
    into = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
        identify_table(publish_id),
        sql.SQL(", ").join(map(sql.Identifier, (*SCALAR_TYPES, *ARRAY_TYPES))),
    )
    rows = 0
    with (
        session.connection.cursor() as cursor,
        session.enclosing(cursor.copy(into)) as copying,
    ):
        copying.write(binary.BEGINNING)
        for chunk in chunks:
            rows += chunk.rows
            encoded = binary.encode_row(_encode_chunk(writer, partition, chunk))
            with session.bounded():
                copying.write(encoded)
        copying.write(binary.END)
    return rows


def read_chunks(session: Session, publish_id: int, writers: Collection[UUID]) -> list[StagedChunk]:
    """Return the chunks that these writers stored, in the order of partitions and rows."""
    chunks = session.execute(
        sql.SQL(
            "SELECT number, messages, rejects FROM {} WHERE writer = ANY(%s) "
            "ORDER BY partition, number"
        ).format(identify_table(publish_id)),
        [list(writers)],
    )
    return [StagedChunk(*row) for row in chunks]


def publish_statement(publish_id: int) -> bytes:
    """Return the text of publish_staged.sql for the staging table of this publish."""
    return statement("publish_staged").replace(TABLE_NAME, f"{TABLE_NAME}_{publish_id}").encode()


def read_columns(session: Session, publish_id: int, number: int, names: Iterable[str]) -> list[Any]:
    """Return the values of these columns of the chunk with this number, in the order of `names`."""
    query = sql.SQL("SELECT {} FROM {} WHERE number = %s").format(
        sql.SQL(", ").join(map(sql.Identifier, names)), identify_table(publish_id)
    )
    [row] = session.execute(query, [number], binary=True)
    return list(row)


def drop(session: Session, publish_id: int) -> None:
    """Drop the staging table, or leave that to a later publish if a task still writes to it."""
    try:
        with session.atomic():
            session.execute(f"SET LOCAL lock_timeout = '{DROP_SECONDS}s'")
            session.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(identify_table(publish_id)))
    except psycopg.errors.LockNotAvailable:
        logger.info(
            "The staging table of publish %d is in use: a later publish drops it.", publish_id
        )


def clean(session: Session) -> None:
    """Abort abandoned atomic publishes, and drop the staging tables that no open publish needs.

    A publish is abandoned if no session holds its advisory lock. Without the option `guarded`, its
    Spark driver must also be dead, or have made no progress for ten minutes.
    """
    with session.atomic():
        rows = session.run("open_drivers", {"host": socket.gethostname()})
        dead = drivers.find_dead(driver for (driver,) in rows)
        for (publish_id,) in session.run("leftovers", {"patience": PATIENCE, "gone": dead}):
            publish_ledger.settle(
                session, publish_id, publish_ledger.ABORTED, publish_ledger.Tally()
            )
            drop(session, publish_id)


def _encode_chunk(writer: UUID, partition: int, chunk: Chunk) -> Iterator[bytes]:
    """Yield the encoded columns of a chunk's row: those of SCALAR_TYPES, then of ARRAY_TYPES."""
    counts = (writer, partition, chunk.count, len(chunk.rejects))
    yield from map(binary.encode_value, SCALAR_TYPES.values(), counts)
    columns = _arrays_of_chunk(chunk)
    for name, kind in ARRAY_TYPES.items():
        yield binary.encode_array(kind, columns[name]) if name in columns else binary.NULL


def _arrays_of_chunk(chunk: Chunk) -> dict[str, Sequence[Any]]:
    columns: dict[str, Sequence[Any]] = {}
    if chunk.count:
        columns.update(zip(MESSAGE_ARRAYS, chunk.columns.values(), strict=True))
        columns["headers"] = [json.dumps(item) if item else "{}" for item in columns["headers"]]
    if any(original is not None for original in chunk.originals):
        columns["originals"] = chunk.originals
    if chunk.rejects:
        columns.update(zip(REJECT_ARRAYS, zip(*chunk.rejects, strict=True), strict=True))
        columns["reject_payloads"] = [payload or b"" for payload in columns["reject_payloads"]]
    return columns


def reject_parameters(rejects: Sequence[Reject]) -> dict[str, str | Blobs]:
    """Return the parameters of reject_rows.sql, which are arrays of the bad rows' fields."""
    reasons, errors, rows, payloads = zip(*rejects, strict=True)
    return {
        "reasons": array(reasons),
        "errors": array(errors),
        "rows": array(rows),
        "reject_payloads": byte_array([payload or b"" for payload in payloads]),
    }
