"""Guard of a run: kills the process groups of a director that was killed itself.

It reads a pipe, and the kernel closes the director's end of it however that process ends.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

OVER: Final = "over"
"""Line of a director that has ended its processes."""


class Guard:
    """Handle of the guard process, to which the director names the process groups to kill."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            start_new_session=True,  # so that a signal to the director's group leaves it alive
            text=True,
        )

    def start(
        self, arguments: Sequence[str], *, log: Path, cwd: Path, environment: Mapping[str, str]
    ) -> "subprocess.Popen[bytes]":
        """Start a Python module in a process group that does not outlive the director.

        Its output is appended to the log.
        """
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                env=environment,
                cwd=cwd,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.protect(process.pid)
        return process

    def protect(self, group: int) -> None:
        """Add a process group that must not outlive the director."""
        self._write(str(group))

    def close(self) -> None:
        """End the guard without a kill of any process. Repeated calls are harmless."""
        if self._process.poll() is None:
            self._write(OVER)
        self._process.communicate()

    def _write(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()


def guard(lines: Iterable[str]) -> None:
    """Read process groups until the director ends, and kill them unless its last line is `over`."""
    groups: list[int] = []
    for line in lines:
        if line.strip() == OVER:
            return
        groups.append(int(line))
    for group in groups:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    guard(sys.stdin)
