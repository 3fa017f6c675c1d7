"""Hearing of the end before the server waits for its last requests."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_before: dict[int, Any] = {}


def before_the_end(stop: Callable[[], None]) -> None:
    """Call it at a signal to end, ahead of the server's own handler; once is enough to ask for.

    A server such as uvicorn tells applications of the end only when all requests are over, and a
    pull that lingers would keep it waiting. Only the main thread can ask for signals: where the
    pulls come on others, as under WSGI, they end with their time.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        stop()
        _pass_on(number, frame)

    if not _before and threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            _before[number] = signal.signal(number, handle)


def forget() -> None:
    """Whoever handled the signals before does so again."""
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
