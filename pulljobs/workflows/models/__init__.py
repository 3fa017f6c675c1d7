"""Tables of batches and workflows. Only statements of `pulljobs.workflows.sql` write their rows."""

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
