"""Ledger of bulk publishes: rows with their states and counts.

A row is published once, because the transaction that publishes it also records that here. The
argument `id` is that of the publish.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple
from uuid import UUID

from pulljobs.errors import ConfigurationError
from pyspark_pulljobs import drivers
from pyspark_pulljobs.database_session import Session
from pyspark_pulljobs.requests import Address, Request

OPEN: Final = "open"
DONE: Final = "done"
ABORTED: Final = "aborted"


class SinkBatch(NamedTuple):
    """Micro-batch of a streaming query that writes to the sink."""

    query_id: UUID
    batch_id: int


class Publish(NamedTuple):
    """Row of the ledger, as it was when the publish was opened."""

    id: int
    is_done: bool
    """True if an earlier run has published, so that nothing is left to do."""


class Tally(NamedTuple):
    """Numbers of the rows of a publish, of its messages and jobs, and of the rows not published."""

    rows: int = 0
    messages: int = 0
    jobs: int = 0
    duplicates: int = 0
    """Rows whose client message id was published in the dedupe window before."""
    key_full: int = 0
    """Rows that a bound on the jobs of their key refused."""
    rejected: int = 0
    """Rows that are not valid messages."""


def sum_tallies(tallies: Iterable[Tally]) -> Tally:
    """Return the sums of these counts."""
    return Tally(*map(sum, zip(Tally(), *tallies, strict=True)))


def open_publish(
    session: Session, request: Request, address: Address, batch: SinkBatch | None = None
) -> Publish:
    """Insert the row of the publish or find it, in the current transaction.

    An aborted publish is open again. The session then holds a lock on the publish, as by `hold`.
    Raise ConfigurationError if its id was used for another channel, consumer or mode.
    """
    identity: dict[str, Any] = {
        "channel_id": address.channel_id,
        "only_consumer_id": address.consumer_id,
        "mode": request.mode,
    }
    publish_id = f"{batch.query_id}/{batch.batch_id}" if batch else request.publish_id
    params = {
        **identity,
        "publish_id": publish_id,
        "query_id": batch and batch.query_id,
        "batch_id": batch and batch.batch_id,
        "guarded": request.guarded,
        "driver": "" if batch else drivers.identify_driver(),  # Tasks of a sink do not know it.
    }
    [(id, *recorded, state)] = session.run("open_publish", params)
    if recorded != list(identity.values()):
        raise ConfigurationError(
            f"Publish {publish_id!r} was begun for another channel, consumer or mode: "
            "use another publishId, or repeat it with the same options."
        )
    hold(session, id)
    return Publish(id, state == DONE)


def hold(session: Session, id: int) -> None:
    """Take a shared advisory lock on the publish until the session ends, as a sign of life.

    Other processes abort a publish as abandoned only while no session holds it.
    """
    session.run("guard_publish", {"id": id})


def touch(session: Session, id: int) -> None:
    """Record that the publish made progress now, without which it may count as abandoned."""
    session.run("touch_publish", {"id": id})


def lock(session: Session, id: int) -> str:
    """Lock the row of the publish until the transaction ends, and return its state."""
    [(state,)] = session.run("lock_publish", {"id": id})
    return str(state)


def settle(session: Session, id: int, state: str, tally: Tally) -> None:
    """Record the final state and the counts of the publish, unless its state is DONE already."""
    session.run("settle_publish", {"id": id, "state": state, **tally._asdict()})


class PublishedPart(NamedTuple):
    """Checksum and counts of the rows that a partition of a chunked publish has committed."""

    checksum: int
    tally: Tally


def begin_part(session: Session, id: int, partition: int) -> PublishedPart:
    """Lock a partition's row until the transaction ends. Return its checksum and counts so far."""
    params = {"publish_id": id, "partition": partition}
    [(checksum, *counts)] = session.run("begin_part", params)
    return PublishedPart(checksum, Tally(*counts))


def settle_part(session: Session, id: int, partition: int, checksum: int, tally: Tally) -> None:
    """Record the checksum and the counts of all rows that the partition has committed by now."""
    params = {"publish_id": id, "partition": partition, "checksum": checksum}
    session.run("settle_part", {**params, **tally._asdict()})


def read_parts(session: Session, id: int) -> dict[int, PublishedPart]:
    """Return checksum and counts of the rows that a publish has committed, by partition number."""
    return {
        partition: PublishedPart(checksum, Tally(*counts))
        for partition, checksum, *counts in session.run("published_parts", {"publish_id": id})
    }
