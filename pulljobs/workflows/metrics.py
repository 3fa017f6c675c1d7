"""Metrics counted from the events of runs."""

from typing import Final

from pulljobs.metrics.families import CONSUMER, Family, Type
from pulljobs.metrics.recorder import count, observe, record
from pulljobs.workflows.telemetry import StepEnded

SECONDS: Final = "pulljobs_step_seconds"
FAILED: Final = "pulljobs_step_failures_total"
FAMILIES: Final = (
    Family(
        SECONDS,
        Type.HISTOGRAM,
        CONSUMER,
        "Time from the begin of a step of a run to its stored result, without those that wait.",
    ),
    Family(
        FAILED,
        Type.COUNTER,
        CONSUMER,
        "Steps whose failure a workflow caught, so that it was stored.",
    ),
)


@record.register
def _(event: StepEnded) -> None:
    count(FAILED, event.channel, event.consumer, by=int(event.is_failed))
    observe(SECONDS, [event.seconds], event.channel, event.consumer)
