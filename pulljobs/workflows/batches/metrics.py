"""Metrics counted from the events of batches."""

from typing import Final

from pulljobs.metrics.families import Family, Type
from pulljobs.metrics.recorder import count, record
from pulljobs.workflows.batches.telemetry import BatchCompleted, BatchReopened, CallbackRefused

COMPLETED: Final = "pulljobs_batches_completed_total"
REOPENED: Final = "pulljobs_batches_reopened_total"
REFUSED: Final = "pulljobs_batch_refusals_total"
FAMILIES: Final = (
    Family(
        COMPLETED,
        Type.COUNTER,
        ("event",),
        "Rounds of batches that ended: `success` if every member was delivered, else `dead`.",
    ),
    Family(REOPENED, Type.COUNTER, (), "Complete batches of which members were redriven."),
    Family(
        REFUSED,
        Type.COUNTER,
        (),
        "Callbacks of batches that were refused; each sweep tries them again.",
    ),
)


@record.register
def _(event: BatchCompleted) -> None:
    count(COMPLETED, "dead" if event.dead else "success")


@record.register
def _(event: BatchReopened) -> None:
    count(REOPENED)


@record.register
def _(event: CallbackRefused) -> None:
    count(REFUSED)
