"""Pull that is not answered yet, which its request and the waiters share."""

import asyncio
from concurrent.futures import Future
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import NamedTuple

from pulljobs.models import Consumer
from pulljobs.pulling import Claim


class PullReason(Enum):
    """Code and reason in the `Status` of an answer."""

    OK = 200, "ok"
    NO_MESSAGES = 404, "no_messages"
    TIMEOUT = 408, "timeout"
    MAX_BYTES = 409, "max_bytes"
    MAX_IN_FLIGHT = 409, "max_in_flight"
    KEY_LIMITED = 409, "key_limited"
    PAUSED = 409, "paused"
    SERVER_SHUTDOWN = 409, "server_shutdown"
    ACK_FAILED = 409, "ack_failed"
    RATE_LIMITED = 429, "rate_limited"
    THROTTLED = 429, "throttled"

    @property
    def code(self) -> int:
        return self.value[0]

    @property
    def reason(self) -> str:
        return self.value[1]


class PullRequest(NamedTuple):
    """Pull as a request asks for it."""

    batch: int = 1
    expires: float = 0.0
    """Longest wait in seconds."""
    max_bytes: int | None = None
    request_id: str | None = None
    incremental_timeout: timedelta | None = None

    @property
    def is_plain(self) -> bool:
        """True if one claim can serve this pull together with others of the same lease."""
        return self.max_bytes is None and self.request_id is None

    def shares_claim(self, first: "PullRequest") -> bool:
        """Return True if one claim can serve this pull and the first, which is plain."""
        return self.is_plain and self.incremental_timeout == first.incremental_timeout


class PullAnswer(NamedTuple):
    """Result of a pull."""

    reason: PullReason
    claim: Claim | None = None

    @property
    def retry_after(self) -> timedelta | None:
        """Time until a rate, a throttle or a key allows a job, or None for another reason."""
        if self.claim is None or self.reason.reason != self.claim.refusal:
            return None
        return self.claim.retry_after


@dataclass(eq=False, slots=True)
class PendingPull:
    """Pull of one request, with the future that the queue answers."""

    consumer: Consumer
    asked: PullRequest
    future: Future[PullAnswer] = field(default_factory=Future)
    """The request cancels it when its client disconnects."""
    reason_if_empty: PullReason = PullReason.NO_MESSAGES
    """Reason of the answer if no job is available and the pull does not wait."""
    timer: asyncio.TimerHandle | None = None
    context: Context = field(default_factory=copy_context)
    """Context of the request."""

    @property
    def waits(self) -> bool:
        """True for a long poll."""
        return self.asked.expires > 0

    def answer(self, answer: PullAnswer) -> bool:
        """Answer the pull. Return True if its request received the jobs."""
        if not self._closes():
            return False
        self.future.set_result(answer)
        return True

    def refuse(self, refusal: Exception) -> None:
        """Answer the pull with a refusal."""
        if self._closes():
            self.future.set_exception(refusal)

    def _closes(self) -> bool:
        """Stop the timer. Return True if the future was still open."""
        if self.timer is not None:
            self.timer.cancel()
        return not self.future.done() and self.future.set_running_or_notify_cancel()


def lease_duration_of(pull: PendingPull) -> timedelta:
    """Return the consumer's lease duration plus the incremental timeout of the pull."""
    return pull.consumer.lease_duration + (pull.asked.incremental_timeout or timedelta())
