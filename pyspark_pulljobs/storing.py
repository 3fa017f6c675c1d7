"""Storage of chunks as messages and jobs, in the transaction of the caller.

`publish.sql` stores chunks from the memory of a task. `publish_staged.sql` stores chunks of the
staging table. If a consumer bounds the jobs of a key, messages are published one at a time, as
`publish_many` does it.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple

import psycopg

from pulljobs.engine import key_bounds
from pulljobs.engine.claiming import keyed
from pulljobs.engine.key_bounds import Key
from pulljobs.engine.sql import DATABASE_CHANNEL, statement
from pulljobs.engine.validation import FullKey, Published, parameters
from pulljobs.errors import KeyFull, UnknownChannel
from pyspark_pulljobs import staging
from pyspark_pulljobs.chunks import Chunk
from pyspark_pulljobs.database_session import Session
from pyspark_pulljobs.publish_ledger import Tally
from pyspark_pulljobs.requests import Address, Request
from pyspark_pulljobs.rows import Reject

logger = logging.getLogger("pulljobs.lake")

MESSAGE_PARAMETERS: Final = (
    "payload", "content_type", "headers", "key", "priority", "client_message_id", "delay",
    "available_at", "cost",
)  # fmt: skip
"""Parameters of publish_one.sql, in the order of the arrays of publish.sql."""
NO_REPLACEMENT: Final = {"replacing": None}


class ChunkCounts(NamedTuple):
    """Counts and ids that publish_staged.sql returns after it stored a chunk."""

    messages: int
    jobs: int
    duplicates: int
    consumer_ids: list[int]
    """Ids of the consumers that get a job of each message."""
    bounded: bool
    """True if nothing was stored, because a consumer bounds the jobs of a key."""
    message_ids: list[int | None] | None
    """Ids of the messages if they replay jobs, with None for duplicates, else None."""


Messages = Iterable[Mapping[str, Any]]
"""Parameters of publish_one.sql for each message."""


class Store:
    """Writer of the messages of one transaction, which counts them and their jobs.

    The caller commits, and calls `free_keys_and_notify` afterwards.
    """

    def __init__(
        self, session: Session, publish_id: int, address: Address, request: Request
    ) -> None:
        self._session, self._publish_id = session, publish_id
        self._keeps_rejects = not request.stops_at_bad_rows
        self._common = {
            "channel": address.channel,
            "producer_id": address.producer_id,
            "dedupe_window": request.bounds.DEDUPE_WINDOW,
            "only_consumer_id": address.consumer_id,
            "batch_id": None,
        }
        self._consumers: set[int] = set()
        self._freed: set[Key] = set()
        self.tally = Tally()

    def store(self, chunk: Chunk) -> None:
        """Store the messages of a chunk, and its bad rows if the publish keeps them."""
        if messages := chunk.messages():
            params = {**self._common, **parameters(messages)}
            self._publish(params, (message.parameters() for message in messages), chunk.originals)
        if chunk.rejects:
            self._reject(chunk.rejects)

    def store_staged(self, staged: staging.StagedChunk) -> None:
        """Store the messages and kept bad rows of a chunk of the staging table."""
        session, id, number = self._session, self._publish_id, staged.number
        if staged.messages:
            counts = self._publish_chunk(number)
            if counts.bounded:
                message_ids = self._publish_singly(_read_messages(session, id, number))
            else:
                message_ids = counts.message_ids or []
                self._consumers.update(counts.consumer_ids)
                self._count(
                    messages=counts.messages, jobs=counts.jobs, duplicates=counts.duplicates
                )
            if message_ids:
                [originals] = staging.read_columns(session, id, number, ["originals"])
                self._link_replays(message_ids, originals or ())
        if staged.rejects:
            values = staging.read_columns(session, id, number, staging.REJECT_COLUMNS)
            self._reject(list(map(Reject, *values)))

    def free_keys_and_notify(self) -> None:
        """Free the keys of jobs that were killed because their key was full. Notify waiters.

        The caller has committed. A database error is only logged: raising it would look as if the
        publish had failed.
        """
        params = {"consumer_ids": sorted(self._consumers), "database_channel": DATABASE_CHANNEL}
        try:
            if self._freed:
                with self._session.atomic():
                    locked = keyed.lock_keys(self._session, self._freed)
                    keyed.free_keys(self._session, locked, ())
            if self._consumers:
                self._session.run("notify", params)
        except psycopg.Error as error:
            logger.warning(
                "The publish is committed, but waiting consumers were not notified: %s", error
            )

    def _publish_chunk(self, number: int) -> ChunkCounts:
        text, params = (
            staging.publish_statement(self._publish_id),
            {**self._common, "number": number},
        )
        with psycopg.Cursor(self._session.connection) as cursor, self._session.bounded():
            row = cursor.execute(text, params, binary=True).fetchone()
        if row is None:
            raise UnknownChannel(str(self._common["channel"]))
        return ChunkCounts(*row)

    def _publish(
        self, params: Mapping[str, Any], messages: Messages, originals: Sequence[int | None]
    ) -> None:
        """Publish a chunk by publish.sql, or message by message if a consumer bounds a key's jobs.

        `originals` has for each message the id of the job that it replays, or None.
        """
        with psycopg.Cursor(self._session.connection) as cursor:
            with self._session.bounded():
                cursor.execute(statement("publish"), params, binary=True)
            first = cursor.fetchone()
            if first is None:
                raise UnknownChannel(str(self._common["channel"]))
            message_ids = (
                self._publish_singly(messages) if first[-1] else self._count_results(cursor)
            )
        self._link_replays(message_ids, originals)

    def _count_results(self, cursor: psycopg.Cursor[Any]) -> list[int | None]:
        """Count the messages and jobs that publish.sql returned, and return the message ids.

        The id of a duplicate is None.
        """
        result = cursor.pgresult
        assert result is not None
        raw = [result.get_value(row, 0) for row in range(result.ntuples)]
        message_ids = [None if value is None else int.from_bytes(value, "big") for value in raw]
        accepted = next((n for n, value in enumerate(raw) if value is not None), None)
        duplicates = raw.count(None)
        messages, jobs = len(raw) - duplicates, 0
        if accepted is not None:
            cursor.scroll(accepted, "absolute")
            row = cursor.fetchone()
            assert row is not None
            jobs = messages * len(row[1])
            self._consumers.update(row[2])
        self._count(messages=messages, jobs=jobs, duplicates=duplicates)
        return message_ids

    def _publish_singly(self, messages: Messages) -> list[int | None]:
        """Publish messages one at a time, because a consumer bounds how many jobs a key may have.

        Return their ids, with None for a duplicate and for a message that a full key refused.
        """
        complete = [{**self._common, **message} for message in messages]
        key_bounds.lock(self._session.run, complete)
        return [self._publish_message(message) for message in complete]

    def _publish_message(self, message: Mapping[str, Any]) -> int | None:
        published, freed = self._try_publish(message)
        if published.full is not None:
            self._reject_full_key(message, published.full)
        elif published.message_id is None:
            self._count(duplicates=1)
        else:
            self._count(messages=1, jobs=len(published.job_ids))
            self._consumers.update(published.consumer_ids)
            self._freed |= freed
        return published.message_id

    def _try_publish(self, message: Mapping[str, Any]) -> tuple[Published, set[Key]]:
        """Publish a message, but undo it if its key is full and the consumer refuses it.

        Return what was published or refused, and the keys of jobs that were killed in favour of the
        message.
        """
        with self._session.atomic():
            result = key_bounds.publish(self._session.run, message)
            if result[0].full is not None:
                raise psycopg.Rollback
        return result

    def _reject_full_key(self, message: Mapping[str, Any], full: FullKey) -> None:
        self._count(key_full=1)
        if self._keeps_rejects:
            error = KeyFull(message["key"], full.consumer, full.message_id)
            self._store_rejects([_full_key_reject(message, error)])

    def _reject(self, rejects: Sequence[Reject]) -> None:
        self._count(rejected=len(rejects))
        if self._keeps_rejects:
            self._store_rejects(rejects)

    def _store_rejects(self, rejects: Sequence[Reject]) -> None:
        self._session.run(
            "reject_rows", {"publish_id": self._publish_id, **staging.reject_parameters(rejects)}
        )

    def _link_replays(
        self, message_ids: Sequence[int | None], originals: Sequence[int | None]
    ) -> None:
        if all(original is None for original in originals):
            return
        params = {
            "publish_id": self._publish_id,
            "consumer_id": self._common["only_consumer_id"],
            "message_ids": list(message_ids),
            "original_job_ids": list(originals),
        }
        self._session.run("link_replays", params)

    def _count(self, **more: int) -> None:
        rows = sum(more.values()) - more.get("jobs", 0)
        counts = {name: getattr(self.tally, name) + count for name, count in more.items()}
        self.tally = self.tally._replace(rows=self.tally.rows + rows, **counts)


def _read_messages(session: Session, publish_id: int, number: int) -> Iterator[dict[str, Any]]:
    columns = staging.read_columns(session, publish_id, number, staging.MESSAGE_ARRAYS)
    for values in zip_longest(*columns):
        params = dict(zip(MESSAGE_PARAMETERS, values, strict=True))
        yield {**params, **NO_REPLACEMENT, "headers": json.dumps(params["headers"])}


def _full_key_reject(message: Mapping[str, Any], error: KeyFull) -> Reject:
    shown = {
        "payload": f"{len(message['payload'])} bytes",
        **{name: message[name] for name in MESSAGE_PARAMETERS[1:] if message[name] is not None},
    }
    return Reject(
        type(error).__name__, str(error), json.dumps(shown, default=str), message["payload"]
    )
