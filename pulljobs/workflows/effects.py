"""Effects that the operations of a run yield, each for a thread and for the event loop."""

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async

from pulljobs.engine import tracing
from pulljobs.handlers import ClaimedJob
from pulljobs.workflows.replay import Step


@dataclass(frozen=True, slots=True)
class UserCall:
    """Effect that calls the function of a step, within a trace span."""

    step: Step
    function: Callable[[], Any]
    job: ClaimedJob
    timeout: timedelta | None = None

    def do(self) -> Any:
        if is_async(self.function):
            raise TypeError(
                f"Step {self.step} has an async function, which a plain workflow can't await: make "
                "the workflow async, too, or the function plain."
            )
        with tracing.step(self.step.name, self.step.number):
            if self.timeout is None:
                return self.function()
            self.job.end_by = time.monotonic() + self.timeout.total_seconds()
            try:
                return self.function()
            finally:
                self.job.end_by = float("inf")

    async def ado(self) -> Any:
        with tracing.step(self.step.name, self.step.number):
            async with asyncio.timeout(None) as limit:
                if is_async(self.function):
                    self._start(limit)
                    return await self.function()
                return await call_in_thread(self._make_starting(limit))

    def _start(self, limit: asyncio.Timeout) -> None:
        """Let the time limit of the step begin now, unless its block has ended."""
        if self.timeout is not None:
            with suppress(RuntimeError):
                now = asyncio.get_running_loop().time()
                limit.reschedule(now + self.timeout.total_seconds())

    def _make_starting(self, limit: asyncio.Timeout) -> Callable[[], Any]:
        """Return the plain function of the step, whose time limit begins when a thread calls it.

        Before that it may wait, because all plain functions of a run share a thread.
        """
        if self.timeout is None:
            return self.function
        loop = asyncio.get_running_loop()

        def call() -> Any:
            loop.call_soon_threadsafe(self._start, limit)
            return self.function()

        return call


@dataclass(frozen=True, slots=True)
class StoreCall:
    """Effect that calls a function with SQL, which an async run does in a thread."""

    function: Callable[[], Any]

    def do(self) -> Any:
        return self.function()

    async def ado(self) -> Any:
        return await call_in_thread(self.function)


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float

    def do(self) -> None:
        time.sleep(self.seconds)

    async def ado(self) -> None:
        await asyncio.sleep(self.seconds)


Effect = UserCall | StoreCall | Pause
Operation = Generator[Effect, Any, Any]
"""Generator of the effects of a call on a run. It gets their results, and returns its own."""


def drive(operation: Operation) -> Any:
    """Do the effects that an operation yields in this thread, and return its result."""
    answer: Callable[[], Effect] = partial(next, operation)
    while True:
        try:
            effect = answer()
        except StopIteration as end:
            return end.value
        try:
            answer = partial(operation.send, effect.do())
        except BaseException as error:
            answer = partial(operation.throw, error)


async def adrive(operation: Operation) -> Any:
    """Do the effects that an operation yields on the event loop, and return its result."""
    answer: Callable[[], Effect] = partial(next, operation)
    while True:
        try:
            effect = answer()
        except StopIteration as end:
            return end.value
        try:
            answer = partial(operation.send, await effect.ado())
        except BaseException as error:
            answer = partial(operation.throw, error)


async def call_in_thread(function: Callable[[], Any]) -> Any:
    """Call a sync function in a thread and return its result."""
    return await sync_to_async(_call)(function)


def _call(function: Callable[[], Any]) -> Any:
    """Call a function, and raise RuntimeError in place of StopIteration, as coroutines do."""
    try:
        return function()
    except StopIteration as error:  # No future can pass it on: its caller would wait for ever.
        raise RuntimeError("The function raised StopIteration.") from error


def is_async(function: Callable[..., Any]) -> bool:
    """Return True if a call of the function, or of the partial or object, has to be awaited."""
    while isinstance(function, partial):
        function = function.func
    called = getattr(function, "__call__", None)  # noqa: B004  of an object, its method
    return iscoroutinefunction(function) or iscoroutinefunction(called)
