"""Signal handlers that end long polls when the server has to stop, before it waits for requests."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_before: dict[int, Any] = {}


def call_before_end(stop: Callable[[], None]) -> None:
    """Set handlers that call `stop` at SIGTERM or SIGINT, before the server's own handlers run.

    A server such as uvicorn notifies applications only after all requests, and so would wait for
    long polls. Only the main thread can set signal handlers, and its first call does: pulls on
    other threads, as under WSGI, end when their time is over.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        stop()
        _pass_on(number, frame)

    if not _before and threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            _before[number] = signal.signal(number, handle)


def restore_handlers() -> None:
    """Restore the handlers that `call_before_end` has replaced, if this is the main thread."""
    if threading.current_thread() is threading.main_thread():
        for number in list(_before):
            signal.signal(number, _before.pop(number))


def _pass_on(number: int, frame: FrameType | None) -> None:
    before = _before.get(number)
    if callable(before):
        before(number, frame)
    elif before == signal.SIG_DFL:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
