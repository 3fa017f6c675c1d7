"""Seeing what a handler raises, which the executor turns into an outcome."""

from typing import Any

from pulljobs.handlers import ClaimedJob, Handler


class Recorded:
    """Stands in for a handler's function and keeps what it raised last."""

    def __init__(self, handler: Handler) -> None:
        self._function = handler.function
        self.exception: BaseException | None = None

    def __call__(self, job: ClaimedJob) -> Any:
        self.exception = None
        try:
            return self._function(job)
        except BaseException as error:
            self.exception = error
            raise
