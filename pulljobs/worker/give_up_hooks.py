"""Telling the project that a job was given up, once it is DEAD."""

import threading
import time
from queue import SimpleQueue

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.db import connections

from pulljobs.engine.telemetry import GivingUpFailed, emit
from pulljobs.handlers import ClaimedJob


class Farewells:
    """A thread for `on_giving_up`, so that nobody waits for it; begun when it is first needed."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[ClaimedJob | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def say(self, job: ClaimedJob) -> None:
        """From one thread only. What it raises loses nothing: the job is settled."""
        if job.handler.on_giving_up is None:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="farewells", daemon=True)
            self._thread.start()
        self._waiting.put(job)

    def end(self, deadline: float) -> None:
        """Until all are said, or that monotonic time."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while (job := self._waiting.get()) is not None:
            call_on_giving_up(job)
            connections.close_all()


def call_on_giving_up(job: ClaimedJob) -> None:
    """Nothing but a KeyboardInterrupt gets out, as of the executor."""
    function = job.handler.on_giving_up
    if function is None:
        return
    try:
        if iscoroutinefunction(function):
            async_to_sync(function)(job)
        else:
            function(job)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        emit(GivingUpFailed(job.id, *job.handler.path, type(error).__name__))
