"""Ledger of bulk publishes, with their states and counts.

A publish happens once, because the transaction that publishes also marks its row as done.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple
from uuid import UUID

from pulljobs.errors import ConfigurationError
from pyspark_pulljobs import drivers
from pyspark_pulljobs.requests import Address, Request
from pyspark_pulljobs.session import Session

OPEN: Final = "open"
DONE: Final = "done"
ABORTED: Final = "aborted"


class Batch(NamedTuple):
    """Micro-batch of a sink."""

    query_id: UUID
    batch_id: int


class Opened(NamedTuple):
    """Row of a publish in the ledger, after it was opened."""

    id: int
    done: bool
    """True if an earlier run has published: nothing is left to do."""


class Tally(NamedTuple):
    """Counts of rows by their outcome."""

    rows: int = 0
    messages: int = 0
    jobs: int = 0
    duplicates: int = 0
    key_full: int = 0
    rejected: int = 0


def total(tallies: Iterable[Tally]) -> Tally:
    return Tally(*map(sum, zip(Tally(), *tallies, strict=True)))


def open_publish(
    session: Session, request: Request, address: Address, batch: Batch | None = None
) -> Opened:
    """Open the publish in the current transaction, and hold it in the caller's session.

    Raises ConfigurationError if its id was used for another channel, consumer or mode.
    """
    asked: dict[str, Any] = {
        "channel_id": address.channel_id,
        "only_consumer_id": address.consumer_id,
        "mode": request.mode,
    }
    publish_id = f"{batch.query_id}/{batch.batch_id}" if batch else request.publish_id
    params = {
        **asked,
        "publish_id": publish_id,
        "query_id": batch and batch.query_id,
        "batch_id": batch and batch.batch_id,
        "guarded": request.guarded,
        "driver": "" if batch else drivers.ours(),  # Tasks of a sink do not know it.
    }
    [(id, *recorded, state)] = session.run("open_publish", params)
    if recorded != list(asked.values()):
        raise ConfigurationError(
            f"Publish {publish_id!r} was begun for another channel, consumer or mode: "
            "use another publishId, or repeat it with the same options."
        )
    hold(session, id)
    return Opened(id, state == DONE)


def hold(session: Session, id: int) -> None:
    """Hold the publish until the session ends: no process can clean it up as abandoned."""
    session.run("guard_publish", {"id": id})


def touch(session: Session, id: int) -> None:
    session.run("touch_publish", {"id": id})


def lock(session: Session, id: int) -> str:
    """Lock the row of the publish until the transaction ends, and return its state."""
    [(state,)] = session.run("lock_publish", {"id": id})
    return str(state)


def settle(session: Session, id: int, state: str, tally: Tally) -> None:
    session.run("settle_publish", {"id": id, "state": state, **tally._asdict()})


class Part(NamedTuple):
    """Committed rows of a task of a chunked publish."""

    checksum: int
    tally: Tally


def begin_part(session: Session, id: int, partition: int) -> Part:
    """Return what the partition has committed, and lock it until the transaction ends."""
    params = {"publish_id": id, "partition": partition}
    [(checksum, *counts)] = session.run("begin_part", params)
    return Part(checksum, Tally(*counts))


def settle_part(session: Session, id: int, partition: int, checksum: int, tally: Tally) -> None:
    params = {"publish_id": id, "partition": partition, "checksum": checksum}
    session.run("settle_part", {**params, **tally._asdict()})


def parts(session: Session, id: int) -> dict[int, Part]:
    """Read the committed parts of a publish, by partition."""
    return {
        partition: Part(checksum, Tally(*counts))
        for partition, checksum, *counts in session.run("published_parts", {"publish_id": id})
    }
