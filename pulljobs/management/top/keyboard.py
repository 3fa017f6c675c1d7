"""Keyboard input of `pulljobs top`: keys without Return, and signals that end a wait for them."""

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
READ_BYTES: Final = 64


class Keyboard:
    """Source of pressed keys. Ctrl-Z is the key `SUSPEND`."""

    def __init__(self, wakeup: int) -> None:
        self._wakeup, self._suspended = wakeup, False
        self._has_keyboard = sys.stdin.isatty()

    def wait(self, seconds: float) -> str:
        """Wait up to `seconds` for keys and return their characters.

        The text is empty if no key was pressed, or if the terminal was resized.
        """
        sources = [self._wakeup, *([sys.stdin.fileno()] if self._has_keyboard else [])]
        ready, _, _ = select.select(sources, [], [], max(0.0, seconds))
        if self._wakeup in ready:
            os.read(self._wakeup, READ_BYTES)
        pressed = ""
        if self._has_keyboard and sys.stdin.fileno() in ready:
            pressed = os.read(sys.stdin.fileno(), READ_BYTES).decode("utf-8", "replace")
            self._has_keyboard = bool(pressed)  # end of file: the terminal is gone
        if self._suspended:
            self._suspended = False
            return SUSPEND
        return pressed

    def suspend(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal of Ctrl-Z (SIGTSTP): make `wait` return `SUSPEND`."""
        self._suspended = True


@contextmanager
def open_keyboard() -> Iterator[Keyboard]:
    """Switch the terminal to keys without Return and echo, yield the keyboard, and switch back.

    Inside, SIGTERM and SIGHUP raise KeyboardInterrupt, so that they switch back as well.
    """
    with ExitStack() as stack:
        if sys.stdin.isatty():
            stack.enter_context(_raw_input())
        keys = Keyboard(stack.enter_context(_wakeup_pipe()))
        handlers: dict[int, Any] = {
            signal.SIGTERM: _quit,
            signal.SIGHUP: _quit,
            signal.SIGTSTP: keys.suspend,
            signal.SIGWINCH: lambda *_: None,
        }
        for number, handler in handlers.items():
            stack.callback(signal.signal, number, signal.signal(number, handler))
        yield keys


@contextmanager
def _raw_input() -> Iterator[None]:
    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    tty.setcbreak(stdin, termios.TCSANOW)
    try:
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


@contextmanager
def _wakeup_pipe() -> Iterator[int]:
    """Yield a file descriptor that becomes readable on any signal, so that it ends a `select`."""
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
