"""Pools that run the handler of a `Consumer`: threads, or for an async one tasks."""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from pulljobs.client import log
from pulljobs.client.handling import Ending, Handling, broken, ends_task
from pulljobs.client.lease_guard import LeaseGuard
from pulljobs.client.messages import Received

Held = Received[Any, Any]
Begin = Callable[[Held], bool]
BeginAsync = Callable[[Held], Awaitable[bool]]
End = Callable[[Held, Ending | None], None]

CANCEL_SECONDS: Final = 5.0
"""Seconds that a cancelled handler may take to end."""


class Pool(Protocol):
    """Queue of messages, and the threads or tasks that run the handler for them."""

    def put(self, messages: list[Any]) -> None: ...

    def take_back(self) -> list[Any]:
        """Remove and return the messages that wait for a handler."""
        ...

    @property
    def running(self) -> list[Any]: ...

    async def cancel(self) -> list[Any]:
        """Cancel running handlers if they are tasks. Return all messages that were in handlers."""
        ...

    async def close(self) -> None: ...


class ThreadPool:
    """Pool of threads. Each calls `begin`, the handler and `end` for one message after another."""

    def __init__(self, handling: Handling, threads: int, begin: Begin, end: End) -> None:
        self._run, self._begin, self._end = handling.run, begin, end
        self._waiting: deque[Held] = deque()
        self._wakes: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Queue on which threads wait: True for each message, False to end a thread.

        The messages are in another queue, so that a wait that is interrupted loses none.
        """
        self._running: dict[int, Held] = {}
        for number in range(threads):
            threading.Thread(target=self._work, name=f"handler-{number}", daemon=True).start()
        self._threads = threads

    @property
    def running(self) -> list[Held]:
        return list(self._running.values())

    def put(self, messages: list[Held]) -> None:
        self._waiting.extend(messages)
        for _ in messages:
            self._wakes.put(True)

    def take_back(self) -> list[Held]:
        back: list[Held] = []
        while (message := self._next()) is not None:
            back.append(message)
        return back

    async def cancel(self) -> list[Held]:
        """Return the messages of running handlers. They go on, as a thread can't be cancelled."""
        return self.running

    async def close(self) -> None:
        for _ in range(self._threads):
            self._wakes.put(False)

    def _next(self) -> Held | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def _work(self) -> None:
        """Run handlers in this thread until the pool is closed. No exception ends it before."""
        goes_on = True
        while goes_on:
            try:
                goes_on = self._wakes.get()
                message = self._next()
                if message is not None:
                    self._work_on(message)
            except BaseException as error:
                self._recover(error)

    def _recover(self, error: BaseException) -> None:
        """Settle this thread's message by `broken`, after an exception outside of the handler.

        Wake a thread again, because this one may have been woken for a message that still waits.
        """
        log.thread_interrupted(log.describe(error))
        message = self._running.pop(threading.get_ident(), None)
        if message is not None:
            self._end(message, broken(message, error))
        self._wakes.put(True)

    def _work_on(self, message: Held) -> None:
        me, ending = threading.get_ident(), None
        self._running[me] = message
        try:
            if self._begin(message):
                ending = self._run(message)
        except BaseException as error:
            ending = broken(message, error)
        finally:
            del self._running[me]
            self._end(message, ending)


class TaskPool:
    """Pool of tasks on the event loop. Each runs the handler for one message after another."""

    def __init__(self, handling: Handling, tasks: int, begin: BeginAsync, end: End) -> None:
        self._run, self._begin, self._end = handling.run_async, begin, end
        self._waiting: asyncio.Queue[Held] = asyncio.Queue()
        self._running: dict[int, Held] = {}
        self._cancelled: list[Held] = []
        self._closing = False
        self._tasks = [asyncio.create_task(self._work(number)) for number in range(tasks)]

    @property
    def running(self) -> list[Held]:
        return list(self._running.values())

    def put(self, messages: list[Held]) -> None:
        for message in messages:
            self._waiting.put_nowait(message)

    def take_back(self) -> list[Held]:
        return [self._waiting.get_nowait() for _ in range(self._waiting.qsize())]

    async def cancel(self) -> list[Held]:
        await self.close()
        return self._cancelled + self.running

    async def close(self) -> None:
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks, timeout=CANCEL_SECONDS)

    async def _work(self, number: int) -> None:
        while not self._closing:  # a handler may have swallowed the cancellation
            message = self._running[number] = await self._waiting.get()
            await self._work_on(message, number)
            await asyncio.sleep(0)  # handlers that never wait must not hold up requests

    async def _work_on(self, message: Held, number: int) -> None:
        ending = None
        try:
            if await self._begin(message):
                ending = await LeaseGuard(message, self._run(message)).result()
        except BaseException as error:
            if ends_task(error):
                self._cancelled.append(message)
                raise
            ending = broken(message, error)
        finally:
            del self._running[number]
            self._end(message, ending)
