"""Records of the exception that a handler raises, which the executor turns into an outcome."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pulljobs.handlers import ClaimedJob, Handler


class RecordedFunction:
    """Function of a handler, with the exception of its last call in `exception`, or None."""

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


class RecordedCoroutineFunction(RecordedFunction):
    """Function of an async handler, with the exception of its last call."""

    async def __call__(self, job: ClaimedJob) -> Any:
        with self._recording():
            return await self._function(job)


def record(handler: Handler) -> RecordedFunction:
    """Return the handler's function wrapped so that it keeps the exception of its last call."""
    return RecordedCoroutineFunction(handler) if handler.is_async else RecordedFunction(handler)
