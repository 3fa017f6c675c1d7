"""Telemetry event of runs, emitted after the commit.

StepEnded    a step of a run whose result or failure was stored, but no wait and no children
"""

from dataclasses import dataclass

from pulljobs.engine.telemetry import log, logger


@dataclass(frozen=True, slots=True)
class StepEnded:
    channel: str
    consumer: str
    kind: str
    seconds: float
    is_failed: bool


@log.register
def _(event: StepEnded) -> None:
    logger.debug(
        "A %s of %s/%s ended after %.3f s.",
        event.kind, event.channel, event.consumer, event.seconds,
    )  # fmt: skip
