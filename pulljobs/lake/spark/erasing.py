"""Erasure of the contents of messages from the lake and from PostgreSQL.

The rows stay in both places, with their ids and times, so that `verify` still accounts for them.
Payload, key, headers and client message id of the messages are erased, the errors and results of
their jobs, and the scheduled messages from which they were published. The lake's messages are
changed last: an erasure that was interrupted finds them again when it is repeated, even by a
predicate, which is applied to the lake alone.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final, NamedTuple

from deltalake import QueryBuilder
from deltalake.exceptions import DeltaError
from django.db import transaction

from pulljobs import ids
from pulljobs.errors import ConfigurationError
from pulljobs.lake import lock, verified_days
from pulljobs.lake.rollups import rollup_erasing
from pulljobs.lake.spark import compacting, exporting
from pulljobs.lake.spark.comparing import PARTITIONED
from pulljobs.lake.spark.tables import WRITER, Table, open_writable_tables
from pulljobs.models import ArchivedJob, Message
from pulljobs.progress import count_items, show_progress
from pulljobs.storage.statements import run

NO_MD5: Final = "d41d8cd98f00b204e9800998ecf8427e"
"""MD5 of an empty payload."""
EMPTIED: Final[Mapping[str, Mapping[str, str]]] = {
    "archive": {"error": "NULL", "result": "NULL"},
    "messages": {
        "key": "NULL",
        "client_message_id": "NULL",
        "headers": "'{}'",
        "payload_bytes": "0",
        # A payload that was not exported stays NULL, so that a restore knows of it.
        "payload": "CASE WHEN payload IS NULL THEN NULL ELSE arrow_cast('', 'Binary') END",
        "payload_md5": f"CASE WHEN payload IS NULL THEN NULL ELSE '{NO_MD5}' END",
    },
}
"""Contents of erased columns by table of the lake, as SQL of the Delta library."""
NAME: Final = "concat(channel_id, ' ', client_message_id)"
"""Expression for a channel and a client message id, as erase_messages.sql compares them."""
IDS_AT_ONCE: Final = 1_000
"""Number of ids in the predicate of one statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureOptions:
    """Choice of the messages to erase: exactly one of the fields is set."""

    key: str | None = None
    message_id: int | None = None
    where: str | None = None
    """SQL predicate over the lake's table of messages."""


@dataclass(slots=True)
class Erased:
    messages: int = 0
    """Number of messages that were erased, in the lake or in the database."""
    settlements: int = 0
    """Number of their settlements in the database that had an error or a result."""
    files: int = 0
    """Number of files that were removed."""
    needed: tuple[int, ...] = ()
    """Ids of messages that were left unchanged, because a job needs them."""


def erase(using: str, location: str, options: ErasureOptions, *, vacuums: bool) -> Erased:
    """Erase the contents of the chosen messages, in the lake and in PostgreSQL.

    With `vacuums`, the old files that had the contents are removed, too. Messages that a job still
    needs are left unchanged. Raise LakeError if the role does not own the tables, if the lake lacks
    an export run, or if another process writes there, ConfigurationError for a wrong predicate.
    """
    lock.check_owner(using)
    with lock.hold_lock(using):
        exporting.check_lake(using, location)
        tables = open_writable_tables(location)
        chosen = _choose(using, tables["messages"], options)
        needed = {row.message_id for row in run(using, "needed_messages", {"message_ids": chosen})}
        erased = Erased(needed=tuple(sorted(needed)))
        if message_ids := [id for id in chosen if id not in needed]:
            _erase(using, location, tables, message_ids, erased)
        if vacuums:
            erased.files = sum(compacting.vacuum_table(t, timedelta()) for t in tables.values())
    return erased


def _choose(using: str, messages: Table, options: ErasureOptions) -> list[int]:
    """Return the sorted ids of the chosen messages. A predicate is applied to the lake alone."""
    if options.where is not None:
        return sorted(set(_select(messages, "id", options.where)))
    if options.message_id is not None:
        there = set(_select(messages, "id", f"id = {options.message_id}"))
        known = Message.objects.using(using).filter(pk=options.message_id)
        return sorted(there | set(known.values_list("pk", flat=True)))
    quoted = str(options.key).replace("'", "''")
    there = set(_select(messages, "id", f"key = '{quoted}'"))
    return sorted(there | {row.id for row in run(using, "keyed_messages", {"key": options.key})})


def _erase(
    using: str, location: str, tables: Mapping[str, Table], message_ids: list[int], erased: Erased
) -> None:
    parts = _find_parts(using, tables, message_ids)
    days = {"archive": _by_day(parts.settled), "messages": _by_day(message_ids)}
    for name, some in days.items():
        for day in some:
            verified_days.record_doubt(using, location, PARTITIONED[name], day)
    with transaction.atomic(using=using):
        params = {
            "message_ids": message_ids,
            "job_ids": sorted(parts.job_ids),
            "scheduled": sorted(parts.names),
        }
        [row] = run(using, "erase_messages", params)
        rollup_erasing.erase_contents(using, message_ids, parts.keys, parts.job_ids)
    for name, some in days.items():
        _update(tables[name], some)
    erased.messages, erased.settlements = len(message_ids), row.settlements


class _Parts(NamedTuple):
    settled: list[int]
    """Ids of settlements in the lake that have an error or a result."""
    job_ids: set[int]
    names: set[str]
    """Channels and client message ids in the lake, under which the messages may be scheduled."""
    keys: set[str]


def _find_parts(using: str, tables: Mapping[str, Table], message_ids: list[int]) -> _Parts:
    archived = ArchivedJob.objects.using(using).filter(message_id__in=message_ids)
    keyed = Message.objects.using(using).filter(pk__in=message_ids).exclude(key=None)
    parts = _Parts([], set(archived.values_list("job_id", flat=True)), set(), set())
    parts.keys.update(key for key in keyed.values_list("key", flat=True) if key)
    for some in _lists(message_ids):
        contents = f"message_id IN ({some}) AND (error IS NOT NULL OR result IS NOT NULL)"
        parts.settled.extend(_select(tables["archive"], "id", contents))
        parts.job_ids.update(_select(tables["archive"], "job_id", f"message_id IN ({some})"))
        with_name = f"id IN ({some}) AND client_message_id IS NOT NULL"
        parts.names.update(_select(tables["messages"], NAME, with_name))
        with_key = f"id IN ({some}) AND key IS NOT NULL"
        parts.keys.update(_select(tables["messages"], "key", with_key))
    return parts


def _select(table: Table, column: str, predicate: str) -> Iterator[Any]:
    """Yield the values of a column of the lake's table, for the rows that fulfil the predicate."""
    if (delta := table.delta()) is None:
        return
    query = f"SELECT {column} FROM lake WHERE {predicate}"
    try:
        for batch in QueryBuilder().register("lake", delta).execute(query):
            yield from batch.column(0).to_pylist()
    except DeltaError as error:
        line = str(error).strip().partition("\n")[0]
        raise ConfigurationError(f"The predicate cannot be used: {line}") from error


def _update(table: Table, days: Mapping[date, Collection[int]]) -> None:
    """Empty the erased columns, such as the payload, in these rows of the lake, by day and id.

    This rewrites the files that hold the rows.
    """
    if (delta := table.delta()) is None:
        return
    with show_progress(f"erase from {table.name}", "days", len(days)) as shown:
        for day in count_items(days, shown):
            for part in _lists(days[day]):
                delta.update(
                    updates=dict(EMPTIED[table.name]),
                    predicate=f"day = '{day}' AND id IN ({part})",
                    writer_properties=WRITER,
                )


def _lists(row_ids: Collection[int]) -> Iterator[str]:
    """Yield the ids as parts of a SQL list, at most `IDS_AT_ONCE` in each."""
    ordered = sorted(row_ids)
    for start in range(0, len(ordered), IDS_AT_ONCE):
        yield ", ".join(map(str, ordered[start : start + IDS_AT_ONCE]))


def _by_day(row_ids: Iterable[int]) -> dict[date, list[int]]:
    days: dict[date, list[int]] = defaultdict(list)
    for row_id in row_ids:
        days[ids.time_of(row_id).date()].append(row_id)
    return dict(days)
