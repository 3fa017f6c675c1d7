"""Store of a dry replay, which ends before the first effect."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pulljobs.workflows.replay import Step
from pulljobs.workflows.storing import RunStore, StepResult


class ReplayEnd(BaseException):
    """End of a dry replay at a step that has not ended."""

    def __init__(self, step: Step) -> None:
        super().__init__(str(step))
        self.step = step


@dataclass(slots=True)
class DryStore(RunStore):
    """Store of a dry replay, which ends before the first effect."""

    def before_effect(self, step: Step) -> None:
        """End the replay."""
        raise ReplayEnd(step)

    def refuse_transaction(self, what: str) -> None:
        """Allow a suspension: the replay itself runs in a transaction."""

    def write(self, step: Step, seconds: float, **options: Any) -> Any:
        """End the replay."""
        raise ReplayEnd(step)

    @contextmanager
    def atomic(self, step: Step, began: float, result: StepResult) -> Iterator[None]:
        """End the replay."""
        self.before_effect(step)
        yield

    def take_signal(self, step: Step, is_over: bool) -> tuple[bool, Any]:
        """End the replay."""
        raise ReplayEnd(step)
