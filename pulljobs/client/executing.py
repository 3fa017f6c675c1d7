"""Execution of a shell command for each message, for `python -m pulljobs.client consume`."""

import asyncio
import os
import re
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from pulljobs.client import log
from pulljobs.client.messages import AsyncMessage

ERROR_BYTES: Final = 1000
"""Length of the end of stderr that is kept as the error."""
KILL_SECONDS: Final = 5.0
"""Seconds that a killed command may take to end."""


class CommandFailed(Exception):
    """Error for a command that ended with an exit code other than 0."""


class Command:
    """Shell command that is the handler of messages: its method `run` is an async handler.

    Its stdin is the payload, and its environment has the rest of the message. With exit code 0 the
    job is delivered, with another it is retried. The command runs in a session of its own, so that
    Ctrl-C reaches only the client, which lets the command end.
    """

    def __init__(
        self, command: str, environment: Mapping[str, str], *, count: int | None = None
    ) -> None:
        self._command, self._environment = command, environment
        self._left = count
        self.on_last: Callable[[], None] = lambda: None
        """Function that is called when the last of `count` messages begins."""
        self.on_done: Callable[[], None] = lambda: None
        """Function that is called when all of `count` messages have ended."""
        self._running = 0

    async def run(self, message: AsyncMessage) -> None:
        """Run the command for a message, or release it if `count` commands were begun before."""
        if self._left == 0:
            await message.release()
            return
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self.on_last()
        self._running += 1
        try:
            await self._run(message)
        finally:
            self._running -= 1
            if self._left == 0 and not self._running:
                self.on_done()

    async def _run(self, message: AsyncMessage) -> None:
        process = await _start(self._command, {**self._environment, **variables(message)})
        try:
            stderr = await _finish(process, message.payload)
        except asyncio.CancelledError:
            if await _kill(process):
                return
            raise
        if process.returncode:
            text = stderr[-ERROR_BYTES:].decode("utf-8", "replace").strip()
            raise CommandFailed(f"exit {process.returncode}" + (f": {text}" if text else ""))


async def _start(command: str, environment: Mapping[str, str]) -> Process:
    """Start a command in a session of its own. Kill it if the task is cancelled meanwhile."""
    starting = asyncio.create_task(
        asyncio.create_subprocess_shell(
            command, stdin=PIPE, stderr=PIPE, env=environment, start_new_session=True
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError):
            await _kill(await starting)
        raise


async def _kill(process: Process) -> bool:
    """Kill a command and its children. Return True if it had ended with exit code 0 before."""
    assert process.stderr is not None
    had_ended = process.stderr.at_eof()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        async with asyncio.timeout(KILL_SECONDS):
            await process.wait()
    except TimeoutError:
        log.not_killed(process.pid)
    return had_ended and process.returncode == 0


async def _finish(process: Process, payload: bytes) -> bytes:
    """Feed the payload to a command, await its end, and return the last bytes of its stderr.

    A command that does not read its stdin is no error.
    """
    assert process.stderr is not None
    feeding = asyncio.create_task(_feed(process, payload))
    stderr = b""
    while chunk := await process.stderr.read(65536):
        stderr = (stderr + chunk)[-ERROR_BYTES:]
    await process.wait()
    await feeding
    return stderr


async def _feed(process: Process, payload: bytes) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(payload)
        await process.stdin.drain()
    process.stdin.close()
    with suppress(BrokenPipeError, ConnectionResetError):
        await process.stdin.wait_closed()


def variables(message: AsyncMessage) -> dict[str, str]:
    """Return the environment variables that describe a message to its command."""
    named = {f"PULLJOBS_HEADER_{_variable(name)}": value for name, value in message.headers.items()}
    return named | {
        "PULLJOBS_JOB_ID": message.id,
        "PULLJOBS_MESSAGE_ID": message.message_id,
        "PULLJOBS_ATTEMPTS": str(message.attempts),
        "PULLJOBS_CONTENT_TYPE": message.content_type,
        "PULLJOBS_KEY": message.key or "",
        "PULLJOBS_PRIORITY": str(message.priority),
    }


def _variable(name: str) -> str:
    # A shell drops variables whose names have other characters.
    return re.sub(r"[^A-Za-z0-9]", "_", name).upper()
