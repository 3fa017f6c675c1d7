"""Data of pulls: their parameters, their answers, and a pull that still waits for its answer."""

import asyncio
import time
from concurrent.futures import Future
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Final, NamedTuple

from pulljobs.models import Consumer
from pulljobs.pulling import QUIET, Claim
from pulljobs.storage.rows import Refusal


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


REASONS: Final = {
    Refusal.PAUSED: PullReason.PAUSED,
    Refusal.MAX_IN_FLIGHT: PullReason.MAX_IN_FLIGHT,
    Refusal.RATE_LIMITED: PullReason.RATE_LIMITED,
    Refusal.THROTTLED: PullReason.THROTTLED,
    Refusal.KEY_LIMITED: PullReason.KEY_LIMITED,
    Refusal.MAX_BYTES: PullReason.MAX_BYTES,
}


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
        """Return True if one claim can serve this pull together with `first`, a plain pull."""
        return self.is_plain and self.incremental_timeout == first.incremental_timeout


class PullAnswer(NamedTuple):
    """Result of a pull: the reason for its status, and its claim, if any, which may be empty."""

    reason: PullReason
    claim: Claim | None = None

    @property
    def retry_after(self) -> timedelta | None:
        """Time after which a limit or a throttle allows a job again, or None for other reasons."""
        if self.claim is None or self.reason.reason != self.claim.refusal:
            return None
        return self.claim.retry_after


class ClaimLimit(NamedTuple):
    """Limit or throttle that the last claim of a queue met. Times are on the monotonic clock."""

    refusal: Refusal | None = None
    """Reason why the claim got no job, or fewer than it wanted, or None."""
    limited_until: float = 0.0
    """Time at which a rate or a throttle allows the next job, or 0 if neither limits claims."""
    quiet_until: float = 0.0
    """Time before which a notification starts no claim."""
    allowed_at: float = 0.0
    """Time at which `refusal` allows a job again, or 0 if unknown."""

    @classmethod
    def met_by(cls, claim: Claim) -> "ClaimLimit":
        """Return the limit that a claim met just now, with the defaults if it met none."""
        now, wait, after = time.monotonic(), claim.limited_for, claim.retry_after
        limited_until = 0.0 if wait is None else now + wait.total_seconds()
        quiet_until = min(limited_until, now + QUIET.total_seconds())
        allowed_at = 0.0 if after is None else now + after.total_seconds()
        return cls(claim.refusal, limited_until, quiet_until, allowed_at)

    def answer_expired(self) -> PullAnswer:
        """Return the answer to a long poll whose time is over: a lasting limit, or a timeout."""
        wait = self.allowed_at - time.monotonic()
        if wait <= 0 or self.refusal is None:
            return PullAnswer(PullReason.TIMEOUT)
        limited = Claim(None, [], False, timedelta(seconds=wait), self.refusal)
        return PullAnswer(REASONS[self.refusal], limited)


@dataclass(eq=False, slots=True)
class PendingPull:
    """Pull that has no answer yet. Its request awaits the future, which the queue completes."""

    consumer: Consumer
    asked: PullRequest
    future: Future[PullAnswer] = field(default_factory=Future)
    """Future of the answer. The request cancels it when its client disconnects."""
    reason_if_empty: PullReason = PullReason.NO_MESSAGES
    """Reason of an answer without jobs, if the pull does not wait or repeats a claim."""
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
        """Stop the timer and mark the future as running. Return False if it was done already."""
        if self.timer is not None:
            self.timer.cancel()
        return not self.future.done() and self.future.set_running_or_notify_cancel()


def reason_of(claim: Claim, otherwise: PullReason) -> PullReason:
    """Return the reason for which a claim got no more jobs, or `otherwise` if it has none."""
    return otherwise if claim.refusal is None else REASONS.get(claim.refusal, otherwise)


def token_digests_of(consumer: Consumer) -> tuple[str, str]:
    """Return the digests of the tokens of a consumer and of its channel."""
    return consumer.token_digest, consumer.channel.token_digest


def lease_duration_of(pull: PendingPull) -> timedelta:
    """Return the lease duration of a claim for the pull: the consumer's plus what the pull adds."""
    return pull.consumer.lease_duration + (pull.asked.incremental_timeout or timedelta())
