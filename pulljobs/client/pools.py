"""Where handlers run: threads for plain ones, the event loop for those that are awaited."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol

from pulljobs.client.handling import Handling, Verdict
from pulljobs.client.messages import Received

Held = Received[Any, Any]
Begin = Callable[[Held], bool]
End = Callable[[Held, Verdict | None], None]


class Pool(Protocol):
    def put(self, messages: list[Any]) -> None: ...

    def take_back(self) -> list[Any]:
        """Those that wait for a handler."""
        ...

    @property
    def running(self) -> list[Any]: ...

    async def cancel(self) -> list[Any]:
        """Those whose handlers were ended before their time."""
        ...

    async def close(self) -> None: ...


class ThreadPool:
    """`begin` and `end` are called on the threads."""

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
        """A thread can't be ended: its message stays with it."""
        return []

    async def close(self) -> None:
        for _ in range(self._threads):
            self._waiting.put(None)

    def _work(self) -> None:
        me = threading.get_ident()
        while (message := self._waiting.get()) is not None:
            self._running[me] = message
            verdict = None
            try:
                if self._begin(message):
                    verdict = self._run(message)
            finally:
                del self._running[me]
                self._end(message, verdict)


class TaskPool:
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
        while not self._closing:  # A handler may have taken the cancellation for its own.
            message = self._running[number] = await self._waiting.get()
            verdict = None
            try:
                if self._begin(message):
                    verdict = await self._run(message)
            except asyncio.CancelledError:
                self._cancelled.append(message)
                raise
            finally:
                del self._running[number]
                self._end(message, verdict)
            await asyncio.sleep(0)  # Handlers that never wait are not to hold up the requests.
