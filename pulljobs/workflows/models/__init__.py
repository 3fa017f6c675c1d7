"""Tables of batches and workflows."""

from pulljobs.workflows.models.batches import Batch, BatchPart
from pulljobs.workflows.models.runs import (
    RunSignal,
    SignalToken,
    StepKind,
    WorkflowRun,
    WorkflowStep,
)

__all__ = [
    "Batch",
    "BatchPart",
    "RunSignal",
    "SignalToken",
    "StepKind",
    "WorkflowRun",
    "WorkflowStep",
]
