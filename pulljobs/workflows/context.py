"""Context of the operations of a run, made for each claim."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from pulljobs.handlers import ClaimedJob
from pulljobs.workflows.definitions import Workflow
from pulljobs.workflows.replay import Replay
from pulljobs.workflows.storing import RunStore


@dataclass(frozen=True, slots=True)
class RunContext:
    """Data of one claim of a run: its job, its replay, its store and columns of its row."""

    job: ClaimedJob
    workflow: Workflow
    replay: Replay
    store: RunStore
    version: int
    rounds: int
    """Number of times that the run has begun again, by `continue_as` or for another message."""
    is_continued: bool
    input: Any
    """Payload of the last `continue_as`, if there was one."""
    running: set[asyncio.Future[None]] = field(default_factory=set)
    """Operations of an async run that have not ended, each as a future of its end."""
