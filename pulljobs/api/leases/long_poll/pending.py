"""One pull, known to the request that makes it and to the waiting room."""

import asyncio
from concurrent.futures import Future
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import NamedTuple

from pulljobs.models import Consumer
from pulljobs.pulling import Claim


class Why(Enum):
    """What the `Status` of an answer says."""

    OK = 200, "ok"
    NO_MESSAGES = 404, "no_messages"
    TIMEOUT = 408, "timeout"
    MAX_BYTES = 409, "max_bytes"
    MAX_IN_FLIGHT = 409, "max_in_flight"
    PAUSED = 409, "paused"
    SERVER_SHUTDOWN = 409, "server_shutdown"
    ACK_FAILED = 409, "ack_failed"

    @property
    def code(self) -> int:
        return self.value[0]

    @property
    def reason(self) -> str:
        return self.value[1]


class Asked(NamedTuple):
    """The body of a pull."""

    batch: int = 1
    expires: float = 0.0
    """Seconds to linger at the most."""
    max_bytes: int | None = None
    request_id: str | None = None
    incremental_timeout: timedelta | None = None

    @property
    def is_plain(self) -> bool:
        """Whether its claim may be one with those of others, to be dealt out."""
        return self[2:] == (None, None, None)


class Answer(NamedTuple):
    why: Why
    claim: Claim | None = None


@dataclass(eq=False, slots=True)
class Pull:
    consumer: Consumer
    asked: Asked
    future: Future[Answer] = field(default_factory=Future)
    """Cancelled by the request when its client goes away."""
    otherwise: Why = Why.NO_MESSAGES
    """What it is told when nothing is there, unless it lingers."""
    timer: asyncio.TimerHandle | None = None
    context: Context = field(default_factory=copy_context)
    """Of the request."""

    @property
    def lingers(self) -> bool:
        return self.asked.expires > 0

    def answer(self, answer: Answer) -> bool:
        """Whether it was still waiting: then what it is given is its own."""
        if not self._closes():
            return False
        self.future.set_result(answer)
        return True

    def refuse(self, refusal: Exception) -> None:
        if self._closes():
            self.future.set_exception(refusal)

    def _closes(self) -> bool:
        if self.timer is not None:
            self.timer.cancel()
        return not self.future.done() and self.future.set_running_or_notify_cancel()
