"""Recorder of the exception of a handler, which the executor turns into an outcome."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pulljobs.handlers import ClaimedJob, Handler


class Recorded:
    """Stand-in for the function of a handler that keeps its last exception."""

    def __init__(self, handler: Handler) -> None:
        self._function = handler.function
        self.exception: BaseException | None = None

    def __call__(self, job: ClaimedJob) -> Any:
        with self._recording():
            return self._function(job)

    @contextmanager
    def _recording(self) -> Iterator[None]:
        self.exception = None
        try:
            yield
        except BaseException as error:
            self.exception = error
            raise


class AsyncRecorded(Recorded):
    async def __call__(self, job: ClaimedJob) -> Any:
        with self._recording():
            return await self._function(job)


def recording(handler: Handler) -> Recorded:
    return AsyncRecorded(handler) if handler.is_async else Recorded(handler)
