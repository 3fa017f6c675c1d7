"""The ledger of publishes: what is open, what is done, and what came of it.

A publish happens once because its row says so in the transaction that publishes.
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
    """A micro-batch of a sink."""

    query_id: UUID
    batch_id: int


class Opened(NamedTuple):
    id: int
    done: bool
    """By an earlier run: there is nothing to do."""


class Tally(NamedTuple):
    """What came of rows."""

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
    """In a transaction, after which the caller's session holds the publish.

    ConfigurationError if the id was used for something else.
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
        "driver": "" if batch else drivers.ours(),  # which tasks of a sink don't know
    }
    [(id, *found, state)] = session.run("open_publish", params)
    if found != list(asked.values()):
        raise ConfigurationError(
            f"Publish {publish_id!r} was begun for another channel, consumer or mode: "
            "take another publishId, or repeat it as it was."
        )
    hold(session, id)
    return Opened(id, state == DONE)


def hold(session: Session, id: int) -> None:
    """Until the session ends nobody takes the publish for one that was left behind."""
    session.run("guard_publish", {"id": id})


def touch(session: Session, id: int) -> None:
    session.run("touch_publish", {"id": id})


def lock(session: Session, id: int) -> str:
    """The state, which nobody changes before the transaction ends."""
    [(state,)] = session.run("lock_publish", {"id": id})
    return str(state)


def settle(session: Session, id: int, state: str, tally: Tally) -> None:
    session.run("settle_publish", {"id": id, "state": state, **tally._asdict()})


class Part(NamedTuple):
    """What is committed of a task of a chunked publish."""

    checksum: int
    tally: Tally


def begin_part(session: Session, id: int, partition: int) -> Part:
    """What is committed of it, which nobody adds to before the transaction ends."""
    params = {"publish_id": id, "partition": partition}
    [(checksum, *counts)] = session.run("begin_part", params)
    return Part(checksum, Tally(*counts))


def settle_part(session: Session, id: int, partition: int, checksum: int, tally: Tally) -> None:
    params = {"publish_id": id, "partition": partition, "checksum": checksum}
    session.run("settle_part", {**params, **tally._asdict()})


def parts(session: Session, id: int) -> dict[int, Part]:
    """By partition."""
    return {
        partition: Part(checksum, Tally(*counts))
        for partition, checksum, *counts in session.run("published_parts", {"publish_id": id})
    }
