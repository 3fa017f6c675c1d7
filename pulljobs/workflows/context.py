"""Context of one claim of a run."""

from dataclasses import dataclass
from typing import Any

from pulljobs.handlers import ClaimedJob
from pulljobs.workflows.definitions import Workflow
from pulljobs.workflows.replay import Replay
from pulljobs.workflows.storing import RunStore


@dataclass(frozen=True, slots=True)
class RunContext:
    """Job of a run with its replay, its store, and what its row has."""

    job: ClaimedJob
    workflow: Workflow
    replay: Replay
    store: RunStore
    version: int
    rounds: int
    is_continued: bool
    input: Any
    """Payload of the last `continue_as`, if there was one."""
