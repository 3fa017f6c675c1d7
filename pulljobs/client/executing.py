"""Running a command for a message."""

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from pulljobs.client.messages import AsyncMessage

ERROR_BYTES: Final = 1000
"""Of what a command says on stderr, the last are kept as the error."""


class CommandFailed(Exception):
    pass


class Command:
    """The payload is its stdin, all else is in its environment; exit 0 acknowledges.

    It runs in a session of its own: Ctrl-C reaches the client alone, which lets it end.
    """

    def __init__(
        self, command: str, environment: Mapping[str, str], *, count: int | None = None
    ) -> None:
        self._command, self._environment = command, environment
        self._left = count
        self.on_last: Callable[[], None] = lambda: None
        """Called when as many messages are begun as asked for, and"""
        self.on_done: Callable[[], None] = lambda: None
        """when the last of them has ended."""
        self._running = 0

    async def run(self, message: AsyncMessage) -> None:
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
        process = await asyncio.create_subprocess_shell(
            self._command,
            stdin=PIPE,
            stderr=PIPE,
            env={**self._environment, **variables(message)},
            start_new_session=True,
        )
        try:
            told = await _finish(process, message.payload)
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            raise
        if process.returncode:
            said = told[-ERROR_BYTES:].decode("utf-8", "replace").strip()
            raise CommandFailed(f"exit {process.returncode}" + (f": {said}" if said else ""))


async def _finish(process: Process, payload: bytes) -> bytes:
    """What it says on stderr; it need not read its stdin."""
    assert process.stderr is not None
    feeding = asyncio.create_task(_feed(process, payload))
    told = b""
    while said := await process.stderr.read(65536):
        told = (told + said)[-ERROR_BYTES:]
    await process.wait()
    await feeding
    return told


async def _feed(process: Process, payload: bytes) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(payload)
        await process.stdin.drain()
    process.stdin.close()
    with suppress(BrokenPipeError, ConnectionResetError):
        await process.stdin.wait_closed()


def variables(message: AsyncMessage) -> dict[str, str]:
    """What a command's environment says of its message."""
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
    return "".join(char if char.isalnum() else "_" for char in name).upper()
