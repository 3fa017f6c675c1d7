"""Run object that the worker passes to async workflows."""

import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from pulljobs.engine.validation import Draft, Payload
from pulljobs.workflows.child_operations import do_gather, do_result, do_start, name_start
from pulljobs.workflows.children import ChildJob
from pulljobs.workflows.effects import Operation, adrive, is_async
from pulljobs.workflows.operations import check_aware, do_once, do_sleep, do_step, do_wait
from pulljobs.workflows.replay import Step, check_delay, name_function
from pulljobs.workflows.runs import RunBase, continue_as
from pulljobs.workflows.storing import StepResult


class AsyncRun(RunBase):
    """Run of an async workflow. Its steps, sleeps, waits and children have to be awaited."""

    async def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        retries: int = 0,
        timeout: timedelta | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the stored result of a step, or call its function, which may be sync or async.

        See `Run.step`. After `timeout` the step raises TimeoutError. A sync function runs in a
        thread, and goes on there.
        """
        return await self._drive(
            do_step(self._context, name, function, args, kwargs, retries, timeout)
        )

    async def atomic(
        self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Call a sync function in a transaction that commits together with the step: exactly once.

        Return the stored result, also if the step has ended before. See `Run.atomic`. The function
        runs in a thread, because Django has no transactions in async code.
        """
        context = self._context
        if is_async(function):
            raise TypeError(
                f"Step {name!r} needs a plain function, because Django has no transactions in "
                f"async code: {name_function(function)} is async."
            )

        def write(step: Step) -> Any:
            result = StepResult()
            with context.store.atomic(step, time.monotonic(), result):
                result.value = function(*args, **kwargs)
            return result.value

        return await self._drive(do_once(context, name, "atomic", "", write))

    async def sleep(self, name: str, delay: timedelta) -> None:
        """Suspend the run for a time. See `Run.sleep`."""
        await self._drive(do_sleep(self._context, name, check_delay(name, delay)))

    async def sleep_until(self, name: str, at: datetime) -> None:
        """Suspend the run until an aware time. See `Run.sleep_until`."""
        await self._drive(do_sleep(self._context, name, check_aware(name, at)))

    async def wait(self, name: str, timeout: timedelta | None = None) -> Any:
        """Return the payload of the next signal of that name, once it is sent. See `Run.wait`."""
        return await self._drive(do_wait(self._context, name, timeout))

    async def gather(
        self,
        name: str,
        drafts: Iterable[Draft | Payload],
        *,
        channel: str | None = None,
        return_errors: bool = False,
    ) -> list[Any]:
        """Publish child jobs and return their results in the order of drafts. See `Run.gather`."""
        results: list[Any] = await self._drive(
            do_gather(self._context, name, channel or name, drafts, return_errors)
        )
        return results

    async def start(
        self, channel: str, payload: Draft | Payload, *, name: str | None = None
    ) -> ChildJob:
        """Publish a child job and go on without waiting for its end. See `Run.start`."""
        child: ChildJob = await self._drive(
            do_start(self._context, name or name_start(channel), channel, payload)
        )
        return child

    async def result(self, child: ChildJob, *, return_errors: bool = False) -> Any:
        """Return the result of a child job once it has ended. See `Run.result`."""
        return await self._drive(do_result(self._context, child, return_errors))

    async def _drive(self, operation: Operation) -> Any:
        """Do an operation, for which the end of the claim waits, and return its result."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._context.running.add(ended)
        try:
            return await adrive(operation)
        finally:
            self._context.running.remove(ended)
            ended.set_result(None)

    def continue_as(self, payload: Any) -> Any:
        """Begin the run again with another payload and without its steps. See `Run.continue_as`."""
        return continue_as(self._context, payload)
