"""Telemetry events of batches, emitted after the commit.

BatchCompleted   a batch whose members have all ended, once for each round
BatchReopened    a batch that was complete, and of which members were redriven
CallbackRefused  a callback that was refused, so that the batch is not complete
"""

from dataclasses import dataclass

from pulljobs import ids
from pulljobs.engine.telemetry import log, logger


@dataclass(frozen=True, slots=True)
class BatchCompleted:
    batch: int
    round: int
    members: int
    dead: int


@dataclass(frozen=True, slots=True)
class BatchReopened:
    batch: int
    round: int


@dataclass(frozen=True, slots=True)
class CallbackRefused:
    batch: int
    error: str


@log.register
def _(event: BatchCompleted) -> None:
    text = "Batch %s has ended in round %d: %d members, %d of them dead."
    counts = (ids.encode(event.batch), event.round, event.members, event.dead)
    if event.dead:
        logger.warning(text, *counts)
    else:
        logger.info(text, *counts)


@log.register
def _(event: BatchReopened) -> None:
    logger.info(
        "Batch %s goes on: members were redriven, and round %d begins.",
        ids.encode(event.batch),
        event.round,
    )


@log.register
def _(event: CallbackRefused) -> None:
    logger.warning(
        "Batch %s can't publish a callback and is tried again soon: %s",
        ids.encode(event.batch),
        event.error,
    )
