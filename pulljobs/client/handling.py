"""What a handler's end means for its message."""

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from pulljobs.client import bodies, log, tracing
from pulljobs.client.bodies import Outcome
from pulljobs.client.messages import Received
from pulljobs.client.strategies import Delay
from pulljobs.engine.circuit import Result
from pulljobs.errors import Discard, LeaseLost, Retry

Handler = Callable[[Any], Any]

RESULTS: Final = {
    Outcome.DELIVERED: Result.SUCCESS,
    Outcome.DEAD: Result.SUCCESS,
    Outcome.RETRY: Result.FAILURE,
    Outcome.RELEASE: Result.NEUTRAL,
}
"""What a word says of whether the next message would succeed."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a message ends; `result` None: as the outcome says."""

    outcome: Outcome
    reason: str = ""
    delay: float | None = None
    result: Result | None = None


@dataclass(frozen=True)
class Handling:
    handler: Handler
    max_attempts: int
    """Calls of the handler; 0: without end."""
    on_giving_up: Handler | None
    requeue_delay: Delay | None
    sample_rate: float = 1.0

    @property
    def is_async(self) -> bool:
        call = getattr(self.handler, "__call__", None)  # noqa: B004  # an object may have one
        return inspect.iscoroutinefunction(self.handler) or inspect.iscoroutinefunction(call)

    def traced(self, channel: str, consumer: str) -> "Handling":
        """The same, with spans around its calls."""
        function = tracing.handler(self.handler, channel, consumer, is_async=self.is_async)
        return replace(self, handler=function)

    def run(self, message: Received[Any, Any]) -> Verdict | None:
        """Call the handler; None: nothing is to be said, or not yet."""
        if self._is_left_out():
            return Verdict(Outcome.DELIVERED, result=Result.NEUTRAL)
        if self._is_over(message):
            return self._give_up(message, f"given up after {self.max_attempts} attempts")
        try:
            self.handler(message)
        except BaseException as error:
            verdict = self._raised(message, error)
            return (
                self._give_up(message, verdict.reason) if self._ends(message, verdict) else verdict
            )
        return None if message.detached else Verdict(Outcome.DELIVERED)

    async def run_async(self, message: Received[Any, Any]) -> Verdict | None:
        """The same for a handler that is awaited."""
        if self._is_left_out():
            return Verdict(Outcome.DELIVERED, result=Result.NEUTRAL)
        if self._is_over(message):
            reason = f"given up after {self.max_attempts} attempts"
            return await self._give_up_async(message, reason)
        try:
            await self.handler(message)
        except BaseException as error:
            if ends_task(error):
                raise
            verdict = self._raised(message, error)
            if self._ends(message, verdict):
                return await self._give_up_async(message, verdict.reason)
            return verdict
        return None if message.detached else Verdict(Outcome.DELIVERED)

    def _is_left_out(self) -> bool:
        return self.sample_rate < 1 and random.random() >= self.sample_rate

    def _is_over(self, message: Received[Any, Any]) -> bool:
        return 0 < self.max_attempts < message.attempts

    def _ends(self, message: Received[Any, Any], verdict: Verdict) -> bool:
        """Whether that was the last call of the handler for it, and it failed."""
        is_last = 0 < self.max_attempts <= message.attempts
        return is_last and verdict.outcome is Outcome.RETRY and not message.settled

    def _raised(self, message: Received[Any, Any], error: BaseException) -> Verdict:
        if isinstance(error, Discard):
            return Verdict(Outcome.DEAD, error.reason)
        if isinstance(error, LeaseLost):
            return Verdict(Outcome.RELEASE, result=Result.NEUTRAL)
        if isinstance(error, Retry):
            after = None if error.after is None else error.after.total_seconds()
            result = Result.FAILURE if error.backoff else Result.NEUTRAL
            return Verdict(Outcome.RETRY, error.reason, self._delay(message, after), result)
        log.failed(message.id, error)
        said = f"{type(error).__name__}: {error}"
        return Verdict(Outcome.RETRY, said, self._delay(message, None))

    def _delay(self, message: Received[Any, Any], asked: float | None) -> float | None:
        """An error of the function loses nothing: the consumer's own retry strategy decides."""
        if asked is not None:
            return bodies.delay(asked)
        try:
            if self.requeue_delay is not None:
                return bodies.delay(self.requeue_delay(message.attempts))
        except Exception as error:
            log.delay_failed(message.id, error)
        return None

    def _give_up(self, message: Received[Any, Any], reason: str) -> Verdict:
        """An error of the callback loses nothing: the job is DEAD, with its last error."""
        try:
            if self.on_giving_up is not None:
                self.on_giving_up(message)
        except BaseException as error:
            log.giving_up_failed(message.id, error)
        return Verdict(Outcome.DEAD, reason, result=Result.NEUTRAL)

    async def _give_up_async(self, message: Received[Any, Any], reason: str) -> Verdict:
        try:
            if self.on_giving_up is not None:
                told = self.on_giving_up(message)
                if isinstance(told, Awaitable):
                    await told
        except BaseException as error:
            if ends_task(error):
                raise
            log.giving_up_failed(message.id, error)
        return Verdict(Outcome.DEAD, reason, result=Result.NEUTRAL)


def ends_task(error: BaseException) -> bool:
    """Whether our task is to end; a CancelledError may be of a task which a handler awaited."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, GeneratorExit)
