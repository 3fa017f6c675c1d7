"""Keys of a terminal, read without Return, beside the signals that end or interrupt a wait."""

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, Final

SUSPEND: Final = "\x1a"
READ: Final = 64


class Keys:
    """What was pressed: characters, `SUSPEND` for Ctrl-Z."""

    def __init__(self, woken: int) -> None:
        self._woken, self._suspended = woken, False
        self._has_keyboard = sys.stdin.isatty()

    def wait(self, seconds: float) -> str:
        """What was pressed within that time; a change of the size ends it, too, with nothing."""
        sources = [self._woken, *([sys.stdin.fileno()] if self._has_keyboard else [])]
        ready, _, _ = select.select(sources, [], [], max(0.0, seconds))
        if self._woken in ready:
            os.read(self._woken, READ)
        pressed = ""
        if self._has_keyboard and sys.stdin.fileno() in ready:
            pressed = os.read(sys.stdin.fileno(), READ).decode("utf-8", "replace")
            self._has_keyboard = bool(pressed)  # at its end, a terminal is gone
        if self._suspended:
            self._suspended = False
            return SUSPEND
        return pressed

    def suspend(self, number: int, frame: FrameType | None) -> None:
        self._suspended = True


@contextmanager
def opened() -> Iterator[Keys]:
    """SIGTERM and a hangup are a KeyboardInterrupt meanwhile, so that all is put back as it was."""
    with ExitStack() as stack:
        if sys.stdin.isatty():
            stack.enter_context(_without_return())
        keys = Keys(stack.enter_context(_wakened()))
        taken: dict[int, Any] = {
            signal.SIGTERM: _quit,
            signal.SIGHUP: _quit,
            signal.SIGTSTP: keys.suspend,
            signal.SIGWINCH: lambda *_: None,
        }
        for number, what in taken.items():
            stack.callback(signal.signal, number, signal.signal(number, what))
        yield keys


@contextmanager
def _without_return() -> Iterator[None]:
    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    tty.setcbreak(stdin, termios.TCSANOW)
    try:
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


@contextmanager
def _wakened() -> Iterator[int]:
    """A descriptor that can be read after any signal."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)


def _quit(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
