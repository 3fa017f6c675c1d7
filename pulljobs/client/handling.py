"""Calls of a handler, and the outcome of a message that follows from its return or exception."""

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from pulljobs.client import bodies, log, tracing
from pulljobs.client.argument_checks import check_counts, check_function, check_hooks
from pulljobs.client.bodies import Outcome, Throttle
from pulljobs.client.messages import Received
from pulljobs.client.strategies import Delay
from pulljobs.engine.circuit import Result
from pulljobs.errors import Discard, LeaseLost, Retry, Snooze

Handler = Callable[[Any], Any]

RESULTS: Final = {
    Outcome.DELIVERED: Result.SUCCESS,
    Outcome.DEAD: Result.SUCCESS,
    Outcome.RETRY: Result.FAILURE,
    Outcome.RELEASE: Result.NEUTRAL,
}
"""Results that the circuit counts, by outcome."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Outcome that follows from the end of a handler.

    The circuit counts `result`, or if it is None: RETRY as failure, DELIVERED and DEAD as success.
    """

    outcome: Outcome
    reason: str = ""
    delay: float | None = None
    result: Result | None = None
    throttle: Throttle | None = None


@dataclass(frozen=True)
class Handling:
    """Handler with the arguments of `Consumer` that decide the outcome of a message."""

    handler: Handler
    max_attempts: int
    """Largest number of calls for one message, or 0 for no limit."""
    on_giving_up: Handler | None
    requeue_delay: Delay | None
    sample_rate: float = 1.0

    def __post_init__(self) -> None:
        check_function("handler", self.handler)
        check_hooks(on_giving_up=self.on_giving_up, requeue_delay=self.requeue_delay)
        check_counts(0, max_attempts=self.max_attempts)

    @property
    def is_async(self) -> bool:
        call = getattr(self.handler, "__call__", None)  # noqa: B004  # an object may have one
        return inspect.iscoroutinefunction(self.handler) or inspect.iscoroutinefunction(call)

    def traced(self, channel: str, consumer: str) -> "Handling":
        """Return a copy that traces each call of the handler, if OpenTelemetry is installed."""
        function = tracing.handler(self.handler, channel, consumer, is_async=self.is_async)
        return replace(self, handler=function)

    def run(self, message: Received[Any, Any]) -> Ending | None:
        """Call the handler, skip it by `sample_rate`, or give up. Return the outcome, if any."""
        if self._is_left_out():
            return Ending(Outcome.DELIVERED, result=Result.NEUTRAL)
        if self._is_over(message):
            return self._give_up(message, f"given up after {self.max_attempts} attempts")
        try:
            self.handler(message)
        except BaseException as error:
            ending = self._raised(message, error)
            if self._ends(message, ending):
                given_up = self._give_up(message, ending.reason)
                return replace(given_up, throttle=ending.throttle)
            return ending
        return None if message.detached else Ending(Outcome.DELIVERED)

    async def run_async(self, message: Received[Any, Any]) -> Ending | None:
        """Await the handler, skip it by `sample_rate`, or give up. Return the outcome, if any."""
        if self._is_left_out():
            return Ending(Outcome.DELIVERED, result=Result.NEUTRAL)
        if self._is_over(message):
            reason = f"given up after {self.max_attempts} attempts"
            return await self._give_up_async(message, reason)
        try:
            await self.handler(message)
        except BaseException as error:
            if ends_task(error):
                raise
            ending = self._raised(message, error)
            if self._ends(message, ending):
                given_up = await self._give_up_async(message, ending.reason)
                return replace(given_up, throttle=ending.throttle)
            return ending
        return None if message.detached else Ending(Outcome.DELIVERED)

    def _is_left_out(self) -> bool:
        return self.sample_rate < 1 and random.random() >= self.sample_rate

    def _is_over(self, message: Received[Any, Any]) -> bool:
        return 0 < self.max_attempts < message.attempts

    def _ends(self, message: Received[Any, Any], ending: Ending) -> bool:
        """Return True if the message has to be given up: its last attempt failed, and it is open.

        The last attempt is that with the number `max_attempts`. A message is open if it was not
        settled and its lease has not ended.
        """
        is_last = 0 < self.max_attempts <= message.attempts
        is_open = not (message.settled or message.lost)
        return is_last and ending.outcome is Outcome.RETRY and is_open

    def _raised(self, message: Received[Any, Any], error: BaseException) -> Ending:
        if isinstance(error, Discard):
            return Ending(Outcome.DEAD, _text(error.reason))
        if isinstance(error, LeaseLost) and error.job == message.id:
            return Ending(Outcome.RELEASE, result=Result.NEUTRAL)
        if isinstance(error, Snooze):
            wait = bodies.delay(error.after.total_seconds())
            return Ending(Outcome.RELEASE, _text(error.reason), wait, Result.NEUTRAL)
        if isinstance(error, Retry):
            after = None if error.after is None else error.after.total_seconds()
            result = Result.FAILURE if error.backoff else Result.NEUTRAL
            delay, throttle = self._delay(message, after), _throttle_of(error)
            return Ending(Outcome.RETRY, _text(error.reason), delay, result, throttle)
        reason = log.describe(error)
        log.failed(message.id, reason)
        return Ending(Outcome.RETRY, reason, self._delay(message, None))

    def _delay(self, message: Received[Any, Any], asked: float | None) -> float | None:
        """Return the seconds before a retry: those asked for, or else by `requeue_delay`.

        The result is None if the retry strategy of the consumer decides, also after an error of
        `requeue_delay`.
        """
        if asked is not None:
            return bodies.delay(asked)
        try:
            if self.requeue_delay is not None:
                return bodies.delay(self.requeue_delay(message.attempts))
        except BaseException as error:
            log.delay_failed(message.id, log.describe(error))
        return None

    def _give_up(self, message: Received[Any, Any], reason: str) -> Ending:
        """Call `on_giving_up` and return the outcome DEAD, even if that function fails."""
        try:
            if self.on_giving_up is not None:
                self.on_giving_up(message)
        except BaseException as error:
            log.giving_up_failed(message.id, log.describe(error))
        return Ending(Outcome.DEAD, reason, result=Result.NEUTRAL)

    async def _give_up_async(self, message: Received[Any, Any], reason: str) -> Ending:
        try:
            if self.on_giving_up is not None:
                pending = self.on_giving_up(message)
                if isinstance(pending, Awaitable):
                    await pending
        except BaseException as error:
            if ends_task(error):
                raise
            log.giving_up_failed(message.id, log.describe(error))
        return Ending(Outcome.DEAD, reason, result=Result.NEUTRAL)


def _throttle_of(error: Retry) -> Throttle | None:
    if not error.throttle or error.after is None or error.after <= timedelta():
        return None
    seconds = min(error.after.total_seconds(), bodies.LONGEST_THROTTLE)
    return Throttle(seconds, error.throttle == "key")


def broken(message: Received[Any, Any], error: BaseException) -> Ending:
    """Return the outcome of a message after an error of the client itself, outside of the handler.

    It is a retry if the handler had begun, else a release. Its empty reason says that no run began.
    """
    reason = log.describe(error)
    log.failed(message.id, reason)
    outcome, sent = (Outcome.RETRY, reason) if message.begun else (Outcome.RELEASE, "")
    return Ending(outcome, sent, result=Result.NEUTRAL)


def _text(reason: object) -> str:
    try:
        return str(reason)
    except BaseException as error:
        return log.describe(error)


def ends_task(error: BaseException) -> bool:
    """Return True if an exception is the end of the handler's task, and no error of the handler.

    That is a cancellation of the task itself, not of another task that the handler awaits, or the
    GeneratorExit of a coroutine that is closed outside of any task. The caller raises it again.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, GeneratorExit) and not _is_in_task()


def _is_in_task() -> bool:
    try:
        return asyncio.current_task() is not None
    except RuntimeError:  # the event loop has ended
        return False
