"""Run object that the worker passes to async workflows."""

import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from pulljobs.engine.validation import Draft, Payload
from pulljobs.workflows.child_operations import do_gather, do_result, do_start, name_start
from pulljobs.workflows.children import ChildJob
from pulljobs.workflows.effects import adrive
from pulljobs.workflows.operations import check_time, do_once, do_sleep, do_step, do_wait
from pulljobs.workflows.replay import Step, check_delay
from pulljobs.workflows.runs import RunBase, continue_as
from pulljobs.workflows.storing import StepResult


class AsyncRun(RunBase):
    """Run of an async workflow. Its methods are those of `Run`, to be awaited."""

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
        """Return the result of a step, and call its function, sync or async, if it has none yet.

        See `Run.step`. A sync function runs in a thread. After `timeout` TimeoutError is raised in
        the step.
        """
        return await adrive(do_step(self._context, name, function, args, kwargs, retries, timeout))

    async def atomic(
        self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Call a sync function in a transaction that commits together with the step: exactly once.

        Return the stored result, also if the step has ended before. The function runs in a thread,
        because Django has no transactions in async code.
        """
        context = self._context

        def write(step: Step) -> Any:
            result = StepResult()
            with context.store.atomic(step, time.monotonic(), result):
                result.value = function(*args, **kwargs)
            return result.value

        return await adrive(do_once(context, name, "atomic", "", write))

    async def sleep(self, name: str, delay: timedelta) -> None:
        """Suspend the run for a time. See `Run.sleep`."""
        await adrive(do_sleep(self._context, name, check_delay(name, delay)))

    async def sleep_until(self, name: str, at: datetime) -> None:
        """Suspend the run until an aware time. See `Run.sleep_until`."""
        await adrive(do_sleep(self._context, name, check_time(name, at)))

    async def wait(self, name: str, timeout: timedelta | None = None) -> Any:
        """Return the payload of the next signal of that name, once it is sent. See `Run.wait`."""
        return await adrive(do_wait(self._context, name, timeout))

    async def gather(
        self,
        name: str,
        drafts: Iterable[Draft | Payload],
        *,
        channel: str | None = None,
        return_errors: bool = False,
    ) -> list[Any]:
        """Publish child jobs and return their results in the order of drafts. See `Run.gather`."""
        results: list[Any] = await adrive(
            do_gather(self._context, name, channel or name, drafts, return_errors)
        )
        return results

    async def start(
        self, channel: str, payload: Draft | Payload, *, name: str | None = None
    ) -> ChildJob:
        """Publish a child job and go on without waiting for its end. See `Run.start`."""
        child: ChildJob = await adrive(
            do_start(self._context, name or name_start(channel), channel, payload)
        )
        return child

    async def result(self, child: ChildJob, *, return_errors: bool = False) -> Any:
        """Return the result of a child job once it has ended. See `Run.result`."""
        return await adrive(do_result(self._context, child, return_errors))

    def continue_as(self, payload: Any) -> Any:
        """Begin the run again with another payload and without its steps. See `Run.continue_as`."""
        return continue_as(self._context, payload)
