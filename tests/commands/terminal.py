"""Pseudo-terminal that runs a command: its screen, pressed keys, and state after the end."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyte
from django.db import connections

from example_project.state import BASE_DIR
from tests.commands import take_terminal
from tests.sessions import wait_until

ESCAPE = "\x1b"
PATIENCE = 90
DECIDING = ("NO_COLOR", "COLUMNS", "LINES")
SCREEN_LEFT, CURSOR_SHOWN = "\x1b[?1049l", "\x1b[?25h"


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a process that uses the database of this test."""
    name = str(connections["default"].settings_dict["NAME"])
    own = {"DJANGO_SETTINGS_MODULE": "tests.worker.settings", "WORKER_DATABASE": name}
    kept = {key: value for key, value in os.environ.items() if key not in DECIDING}
    return {**kept, **own, "TERM": "xterm-256color", **more}


def piped(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run `manage.py pulljobs` with its output in a pipe, not in a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "django", "pulljobs", *arguments],
        cwd=BASE_DIR, env=environment(), capture_output=True, text=True, timeout=PATIENCE, **more,
    )  # fmt: skip


class Terminal:
    """Pseudo-terminal that runs a verb: `with Terminal(["top"], 80, 24) as terminal:`."""

    def __init__(self, arguments: Sequence[str], columns: int, rows: int, **environ: str) -> None:
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self._master, slave = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self._master)
        self._raw = b""
        command = [take_terminal.__file__, "-m", "django", "pulljobs", *arguments]
        self.process = subprocess.Popen(
            [sys.executable, *command],
            cwd=BASE_DIR, env=environment(**environ), start_new_session=True,
            stdin=slave, stdout=slave, stderr=slave,
        )  # fmt: skip
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(20)
        os.close(self._master)
        sys.stdout.write(f"{self.text}\n{self.raw[-2000:]!r}")  # pytest shows it if a test fails.

    def _read(self) -> None:
        with suppress(OSError):  # EIO: the last process has closed it
            while data := os.read(self._master, 65_536):
                with self._lock:
                    self._raw += data
                    self._stream.feed(data)

    @property
    def lines(self) -> list[str]:
        with self._lock:
            return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def raw(self) -> str:
        with self._lock:
            return self._raw.decode()

    @property
    def is_restored(self) -> bool:
        """True if the modes of the terminal, such as echo, are again as before the verb began."""
        return termios.tcgetattr(self._master) == self.before

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the terminal, and with it send SIGWINCH to the process."""
        with self._lock:
            self._screen.resize(rows, columns)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, text: str) -> None:
        """Wait until the screen shows a text. Fail if the process ends without it."""
        wait_until(lambda: text in self.text or self._is_over(text), PATIENCE)

    def wait_for_exit(self) -> int:
        """Wait until the process has ended and its output was read. Return the exit code."""
        code = self.process.wait(PATIENCE)
        self._reader.join(20)
        return code

    def _is_over(self, text: str) -> bool:
        over = self.process.poll() is not None
        assert not over or text in self.text, self.raw
        return over
