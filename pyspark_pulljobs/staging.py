"""Where tasks bring their rows before anybody may see them: a table for each atomic publish.

A row of it is a chunk: arrays of its messages and of its bad rows, which publish_staged.sql reads
where they are. Chunks of tasks that failed, or ran twice, stay unread: a commit names the writers
it takes. The table is not logged, and goes with the publish.
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
"""After which a publish that nobody guards nor touches is left behind, wherever its driver was."""
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
"""Of messages; one that is empty is of NULLs."""
BAD: Final = {"reasons": "text", "errors": "text", "rows": "text", "reject_payloads": "bytea"}
REJECTS: Final = tuple(BAD)
KINDS: Final = {**ARRAYS, "originals": "bigint", **BAD}
COUNTS: Final = {"writer": "uuid", "partition": "int", "messages": "int", "rejects": "int"}
STAND_IN: Final = "pulljobs_staged"
"""For a table's name, in publish_staged.sql."""


class Staged(NamedTuple):
    """A chunk in the table."""

    number: int
    messages: int
    rejects: int


def table(publish_id: int) -> sql.Identifier:
    return sql.Identifier(f"{STAND_IN}_{publish_id}")


def create(session: Session, publish_id: int) -> None:
    """In the transaction that opens the publish, under its lock; one that is there is kept."""
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
    # Out of line as it is: to compress it would take longer than to read it twice.
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
            f"An atomic publish needs a table of its own ({error.diag.message_primary}): GRANT "
            "CREATE ON the SCHEMA, or publish in mode chunked."
        ) from None
    session.connection.execute(sql.SQL("ALTER TABLE {} {}").format(name, external))


def copy(
    session: Session, publish_id: int, writer: UUID, partition: int, chunks: Iterable[Chunk]
) -> int:
    """Bring a task's chunks, all or none; how many rows there were."""
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
    """The chunks of these writers, in the order of their tasks and rows."""
    found = session.connection.execute(
        sql.SQL(
            "SELECT number, messages, rejects FROM {} WHERE writer = ANY(%s) "
            "ORDER BY partition, number"
        ).format(table(publish_id)),
        [list(writers)],
    )
    return [Staged(*row) for row in found]


def publishing(publish_id: int) -> bytes:
    """The text of publish_staged.sql, of the table of this publish."""
    return statement("publish_staged").replace(STAND_IN, f"{STAND_IN}_{publish_id}").encode()


def read(session: Session, publish_id: int, number: int, names: Iterable[str]) -> list[Any]:
    """Columns of a chunk."""
    query = sql.SQL("SELECT {} FROM {} WHERE number = %s").format(
        sql.SQL(", ").join(map(sql.Identifier, names)), table(publish_id)
    )
    [row] = session.connection.execute(query, [number], binary=True)
    return list(row)


def drop(session: Session, publish_id: int) -> None:
    """What a task is still writing to is dropped by a later publish."""
    try:
        with session.atomic():
            session.connection.execute(f"SET LOCAL lock_timeout = '{DROP_SECONDS}s'")
            session.connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table(publish_id)))
    except psycopg.errors.LockNotAvailable:
        logger.info("What was staged of publish %d is in use, and dropped later.", publish_id)


def clean(session: Session) -> None:
    """Drop what killed publishes left behind."""
    with session.atomic():
        found = session.run("open_drivers", {"host": socket.gethostname()})
        gone = drivers.gone(driver for (driver,) in found)
        for (publish_id,) in session.run("leftovers", {"patience": PATIENCE, "gone": gone}):
            ledger.settle(session, publish_id, ledger.ABORTED, ledger.Tally())
            drop(session, publish_id)


def _fields(writer: UUID, partition: int, chunk: Chunk) -> Iterator[bytes]:
    """As the columns of COUNTS and KINDS."""
    counts = (writer, partition, chunk.count, len(chunk.rejects))
    yield from map(binary.value, COUNTS.values(), counts)
    columns = _columns(chunk)
    for name, kind in KINDS.items():
        yield binary.array(kind, columns[name]) if name in columns else binary.NULL


def _columns(chunk: Chunk) -> dict[str, Sequence[Any]]:
    columns: dict[str, Sequence[Any]] = {}
    if chunk.count:
        columns.update(zip(ARRAYS, chunk.columns.values(), strict=True))
        columns["headers"] = [json.dumps(one) if one else "{}" for one in columns["headers"]]
    if any(original is not None for original in chunk.originals):
        columns["originals"] = chunk.originals
    if chunk.rejects:
        columns.update(zip(BAD, zip(*chunk.rejects, strict=True), strict=True))
        columns["reject_payloads"] = [one or b"" for one in columns["reject_payloads"]]
    return columns


def rejects(bad: Sequence[Reject]) -> dict[str, str | Blobs]:
    """The arrays of bad rows."""
    reasons, errors, rows, payloads = zip(*bad, strict=True)
    return {
        "reasons": array(reasons),
        "errors": array(errors),
        "rows": array(rows),
        "reject_payloads": byte_array([payload or b"" for payload in payloads]),
    }
