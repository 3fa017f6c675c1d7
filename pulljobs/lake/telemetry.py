"""Telemetry events of the lake, which `engine.telemetry.emit` takes, and their log lines."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from pulljobs.engine.telemetry import log

logger = logging.getLogger("pulljobs")


@dataclass(frozen=True, slots=True)
class LakeExported:
    """End of an export run, with its numbers of rows by table of the lake."""

    rows: Mapping[str, int]
    bytes: int


@dataclass(frozen=True, slots=True)
class ExportHeldBack:
    """Transaction that has been open for long, and keeps later settlements out of the lake."""

    holder: str
    seconds: float


@log.register
def _(event: LakeExported) -> None:
    counts = ", ".join(f"{rows} {table}" for table, rows in event.rows.items())
    logger.info("Exported to the lake: %s rows, %d bytes.", counts, event.bytes)


@log.register
def _(event: ExportHeldBack) -> None:
    logger.warning(
        "Nothing newer goes to the lake: %s has had a transaction open for %.0f s.",
        event.holder,
        event.seconds,
    )
