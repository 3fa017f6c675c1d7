"""Data of pulls: their parameters, their answers, and a pull that still waits for its answer."""

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
    """Code and reason in the `Status` of the answer to a pull."""

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
    """Parameters of a pull, from the body of its request."""

    batch: int = 1
    expires: float = 0.0
    """Longest wait in seconds."""
    max_bytes: int | None = None
    request_id: str | None = None
    incremental_timeout: timedelta | None = None

    @property
    def is_plain(self) -> bool:
        """True if one claim can serve this pull together with others of the same lease duration."""
        return self.max_bytes is None and self.request_id is None

    def shares_claim(self, first: "PullRequest") -> bool:
        """Return True if one claim can serve this pull and `first`, for which `is_plain` holds."""
        return self.is_plain and self.incremental_timeout == first.incremental_timeout


class PullAnswer(NamedTuple):
    """Result of a pull: its claim, if it got jobs, and the reason for its status."""

    reason: PullReason
    claim: Claim | None = None

    @property
    def retry_after(self) -> timedelta | None:
        """Time after which a limit or a throttle allows a job again, or None for other reasons."""
        if self.claim is None or self.reason.reason != self.claim.refusal:
            return None
        return self.claim.retry_after


@dataclass(eq=False, slots=True)
class PendingPull:
    """Pull that has no answer yet. Its request awaits the future, which the queue completes."""

    consumer: Consumer
    asked: PullRequest
    future: Future[PullAnswer] = field(default_factory=Future)
    """Future of the answer. The request cancels it when its client disconnects."""
    reason_if_empty: PullReason = PullReason.NO_MESSAGES
    """Reason of the answer if no job is available and the pull does not wait."""
    timer: asyncio.TimerHandle | None = None
    context: Context = field(default_factory=copy_context)
    """Context of the request, which gives log lines its id."""
    token_digests: tuple[str, str] = field(init=False)
    """Digests of the tokens of consumer and channel with which the pull was sent."""

    def __post_init__(self) -> None:
        self.token_digests = token_digests_of(self.consumer)

    @property
    def waits(self) -> bool:
        """True if this is a long poll, which waits for jobs."""
        return self.asked.expires > 0

    def answer(self, answer: PullAnswer) -> bool:
        """Complete the future with an answer. Return False if it was cancelled or complete."""
        if not self._closes():
            return False
        self.future.set_result(answer)
        return True

    def refuse(self, refusal: Exception) -> None:
        """Complete the future with a refusal, unless it was cancelled or complete."""
        if self._closes():
            self.future.set_exception(refusal)

    def _closes(self) -> bool:
        """Stop the timer of the wait, and return True if the future can be completed now."""
        if self.timer is not None:
            self.timer.cancel()
        return not self.future.done() and self.future.set_running_or_notify_cancel()


def token_digests_of(consumer: Consumer) -> tuple[str, str]:
    """Return the digests of the tokens of a consumer and of its channel."""
    return consumer.token_digest, consumer.channel.token_digest


def lease_duration_of(pull: PendingPull) -> timedelta:
    """Return the lease duration of a claim for the pull: the consumer's plus what the pull adds."""
    return pull.consumer.lease_duration + (pull.asked.incremental_timeout or timedelta())
