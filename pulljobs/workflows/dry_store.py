"""Replay and store for a dry replay, which ends before the first effect."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pulljobs.workflows.replay import Ending, Replay, Step
from pulljobs.workflows.storing import RunStore, StepResult


class ReplayEnd(BaseException):
    """BaseException that ends a dry replay, raised at a step that has not ended."""

    def __init__(self, step: Step) -> None:
        super().__init__(str(step))
        self.step = step


class DryReplay(Replay):
    """Replay in which a suspension ends only its asyncio task: others go on with stored steps."""

    def raise_ending(self, ending: Ending) -> Any:
        raise ending


@dataclass(slots=True)
class DryStore(RunStore):
    """Store that raises ReplayEnd in place of the first call or write of a step."""

    def before_effect(self, step: Step) -> None:
        """Raise ReplayEnd: the step has not ended."""
        raise ReplayEnd(step)

    def refuse_transaction(self, what: str) -> None:
        """Allow any call, because the dry replay itself runs in a transaction."""

    def write(self, step: Step, seconds: float, **options: Any) -> Any:
        """Raise ReplayEnd in place of writing the step."""
        raise ReplayEnd(step)

    @contextmanager
    def atomic(self, step: Step, began: float, result: StepResult) -> Iterator[None]:
        """Raise ReplayEnd in place of opening a transaction."""
        self.before_effect(step)
        yield

    def take_signal(self, step: Step, is_over: bool) -> tuple[bool, Any]:
        """Raise ReplayEnd in place of taking a signal."""
        raise ReplayEnd(step)
