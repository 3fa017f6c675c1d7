"""Guard of the run of an async handler: the run ends with the lease of its message."""

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any, Final

from pulljobs.client import log
from pulljobs.client.bodies import Outcome
from pulljobs.client.handling import Ending
from pulljobs.client.messages import Received
from pulljobs.engine.circuit import Result

CUT_OFF: Final = Ending(Outcome.RELEASE, result=Result.NEUTRAL)


class LeaseGuard:
    """Run of an async handler that is cancelled when the lease of its message is over or lost.

    A timer cancels a run that awaits something. In addition the clock is read after each await,
    because after a freeze of the process the run may go on before the timer fires.
    """

    def __init__(
        self, message: Received[Any, Any], run: Coroutine[Any, Any, Ending | None]
    ) -> None:
        self._message, self._run = message, run
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Any] | None = None
        self._is_cut_off = False

    async def result(self) -> Ending | None:
        """Await the run and return its outcome: a release if the lease's end cancelled the run.

        The outcome is None if the handler detached the message and returned.
        """
        task = self._task = asyncio.current_task()
        assert task is not None
        self._message.on_cut_off = self._cut_off
        self._watch()
        try:
            return await self._steps()
        except asyncio.CancelledError:
            if not self._is_cut_off or task.cancelling() > 1:
                raise
            return CUT_OFF
        finally:
            self._end(task)

    @types.coroutine
    def _steps(self) -> Generator[Any, Any, Ending | None]:
        resume: Any = self._run.send
        given: Any = None
        while True:
            try:
                awaited = resume(given)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # of the run
            try:
                resume, given = self._run.send, (yield awaited)
                if self._message.lost and self._cut_off():
                    yield  # the task raises the cancellation here
            except GeneratorExit:
                self._run.close()
                raise
            except BaseException as error:
                resume, given = self._run.throw, error

    def _watch(self) -> None:
        """Cancel the run if the lease is over, else check again when it is due to end.

        A renewal may have moved the end of the lease since the last check.
        """
        if self._message.lost:
            self._cut_off()
        elif not self._message.settled:
            self._timer = self._loop.call_at(self._message.deadline, self._watch)

    def _cut_off(self) -> bool:
        """Cancel the run. Return False if this was done before, or if the run has not begun."""
        if self._is_cut_off or self._task is None:
            return False
        self._is_cut_off = True
        log.cut_off(self._message.id)
        return self._task.cancel()

    def _end(self, task: "asyncio.Task[Any]") -> None:
        self._message.on_cut_off = bool
        if self._timer is not None:
            self._timer.cancel()
        if self._is_cut_off:
            task.uncancel()
