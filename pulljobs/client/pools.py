"""Pools that run handlers: threads, or tasks of the event loop for asynchronous ones."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol

from pulljobs.client.handling import Ending, Handling
from pulljobs.client.messages import Received

Held = Received[Any, Any]
Begin = Callable[[Held], bool]
End = Callable[[Held, Ending | None], None]


class Pool(Protocol):
    """Pool of handlers with a queue of messages."""

    def put(self, messages: list[Any]) -> None: ...

    def take_back(self) -> list[Any]:
        """Remove and return the messages that wait for a handler."""
        ...

    @property
    def running(self) -> list[Any]: ...

    async def cancel(self) -> list[Any]:
        """Cancel handlers; return their messages."""
        ...

    async def close(self) -> None: ...


class ThreadPool:
    """Pool of threads, which also call `begin` and `end`."""

    def __init__(self, handling: Handling, threads: int, begin: Begin, end: End) -> None:
        self._run, self._begin, self._end = handling.run, begin, end
        self._waiting: queue.SimpleQueue[Held | None] = queue.SimpleQueue()
        self._running: dict[int, Held] = {}
        for number in range(threads):
            threading.Thread(target=self._work, name=f"handler-{number}", daemon=True).start()
        self._threads = threads

    @property
    def running(self) -> list[Held]:
        return list(self._running.values())

    def put(self, messages: list[Held]) -> None:
        for message in messages:
            self._waiting.put(message)

    def take_back(self) -> list[Held]:
        back: list[Held] = []
        try:
            while True:
                message = self._waiting.get_nowait()
                if message is not None:
                    back.append(message)
        except queue.Empty:
            return back

    async def cancel(self) -> list[Held]:
        """Return no messages: a thread cannot be cancelled and keeps its message."""
        return []

    async def close(self) -> None:
        for _ in range(self._threads):
            self._waiting.put(None)

    def _work(self) -> None:
        me = threading.get_ident()
        while (message := self._waiting.get()) is not None:
            self._running[me] = message
            ending = None
            try:
                if self._begin(message):
                    ending = self._run(message)
            finally:
                del self._running[me]
                self._end(message, ending)


class TaskPool:
    """Pool of tasks on the event loop."""

    def __init__(self, handling: Handling, tasks: int, begin: Begin, end: End) -> None:
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
        return self._cancelled

    async def close(self) -> None:
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self, number: int) -> None:
        while not self._closing:  # a handler may have swallowed the cancellation
            message = self._running[number] = await self._waiting.get()
            ending = None
            try:
                if self._begin(message):
                    ending = await self._run(message)
            except asyncio.CancelledError:
                self._cancelled.append(message)
                raise
            finally:
                del self._running[number]
                self._end(message, ending)
            await asyncio.sleep(0)  # handlers that never wait must not hold up requests
