"""Give-up hooks: calls of a handler's `on_giving_up` once its job is DEAD."""

import logging
import threading
import time
from contextvars import copy_context
from queue import SimpleQueue

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.db import connections

from pulljobs.engine.telemetry import GivingUpFailed, emit
from pulljobs.handlers import ClaimedJob
from pulljobs.worker.thread_connections import ThreadConnections, make_caches

logger = logging.getLogger("pulljobs.worker")


class GiveUpHooks:
    """Thread that calls `on_giving_up`, so that no loop waits for it. The first call starts it.

    The job is settled before its hook is called, so an error in the hook loses nothing.
    """

    def __init__(self) -> None:
        self._waiting: SimpleQueue[ClaimedJob | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, job: ClaimedJob) -> None:
        """Have the hook of this job called soon. Only the flusher's thread may call this."""
        if job.handler.on_giving_up is None:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="give-up-hooks", daemon=True)
            self._thread.start()
        self._waiting.put(job)

    def end(self, deadline: float) -> None:
        """Wait until all hooks have returned, or until the monotonic time `deadline`.

        A hook that is submitted later may never be called.
        """
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        make_caches()
        kept = ThreadConnections()
        while (job := self._waiting.get()) is not None:
            copy_context().run(call_give_up_hook, job)
            try:
                kept.end_transactions(job.id)
                connections.close_all()
            except Exception as error:
                logger.warning("A connection of a give-up hook can't be closed: %s", error)


def call_give_up_hook(job: ClaimedJob) -> None:
    """Call `on_giving_up` of the job's handler, and emit an event if it raises.

    Only a KeyboardInterrupt in the main thread, where Ctrl-C raises it, is raised again.
    """
    function = job.handler.on_giving_up
    if function is None:
        return
    try:
        if iscoroutinefunction(function):
            async_to_sync(function)(job)
        else:
            function(job)
    except BaseException as error:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and isinstance(error, KeyboardInterrupt):
            raise
        emit(GivingUpFailed(job.id, *job.handler.names, type(error).__name__))
