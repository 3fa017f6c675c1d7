"""Pulled messages, as handlers and callers of `fetch` get them."""

import json
import threading
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from pulljobs.client import bodies
from pulljobs.client.bodies import WAITING_SHARE, Job, Outcome, Progress, Settlement, Throttle
from pulljobs.client.errors import LeaseLost
from pulljobs.engine.circuit import Result
from pulljobs.engine.validation import check_amount

Done = TypeVar("Done")
Left = TypeVar("Left")
Done_co = TypeVar("Done_co", covariant=True)
Left_co = TypeVar("Left_co", covariant=True)

_once = threading.Lock()


class Recipient(Protocol[Done_co, Left_co]):
    """Receiver of the outcomes and renewals of messages, which it sends to the broker.

    A pull consumer sends each at once. A `Consumer` sends outcomes in batches.
    """

    def settle(self, message: Any, settlement: Settlement) -> Done_co: ...

    def renew(self, message: Any, seconds: float | None) -> Left_co: ...

    def done(self) -> Done_co:
        """Return what `settle` returns, but send nothing: the message was settled before."""
        ...

    def requeue_delay(self, attempts: int) -> float | None: ...


class Received(Generic[Done, Left]):
    """Message of a pulled job. The first `ack`, `nack`, `reject` or `release` settles it.

    These methods return None, and those of AsyncMessage an awaitable.
    """

    def __init__(self, job: Job, recipient: Recipient[Done, Left]) -> None:
        self.recipient = recipient
        self.job = job
        self.deadline = job.deadline
        """End of the lease, on the monotonic clock."""
        self._half = job.lease_seconds / 2
        self.settled = False
        self.begun = False
        """True once a handler of a `Consumer` has begun with the message."""
        self.revoked = False
        """True if no outcome is sent: the broker has ended the lease, or the client gave it up."""
        self.given_back = False
        """True if the client released the message on its own."""
        self.report: Progress | None = None
        """Progress that the next renewal reports."""
        self.is_unanswered = False
        """True while the broker has not answered the last renewal."""
        self.ended_by_outage: bool | None = None
        """True if the lease ended because the broker did not answer, None while it is unknown."""
        self.on_cut_off: Callable[[], object] = bool
        """Function that stops the handler, called on the event loop."""
        self.detached = False
        self.ticket = 0
        """Number of the state that the circuit of the `Consumer` had before the pull."""
        self.result: Result | None = None
        """Result that the circuit counts, or None for the usual one of the outcome."""

    @property
    def id(self) -> str:
        """Public id of the job."""
        return self.job.id

    @property
    def message_id(self) -> str:
        """Client message id, or the message's public id if it was published without one."""
        return str(self.job.message["MessageID"])

    @property
    def payload(self) -> bytes:
        """Payload of the message, as bytes."""
        return self.job.payload

    def json(self) -> Any:
        """Decode the payload as JSON. Raise ValueError if it is not JSON."""
        return json.loads(self.payload)

    @property
    def headers(self) -> dict[str, str]:
        """Headers that the producer gave the message."""
        return dict(self.job.message.get("Headers") or {})

    @property
    def content_type(self) -> str:
        """Content type of the payload."""
        return str(self.job.message.get("ContentType") or bodies.BYTES)

    @property
    def attempts(self) -> int:
        """Number of claims of the job, this one included, without those that ended in a release."""
        return int(self.job.given.get("Deliveries") or 1)

    @property
    def timestamp(self) -> datetime:
        """Time of the publish, aware."""
        return datetime.fromisoformat(self.job.message["PublishedAt"])

    @property
    def key(self) -> str | None:
        """Key of the message, or None if it has none."""
        return self.job.given.get("Key")

    @property
    def priority(self) -> int:
        """Priority of the job. Higher numbers are claimed first."""
        return int(self.job.given.get("Priority") or 0)

    @property
    def lost(self) -> bool:
        """True if the handler should stop: lease lost or over, or given back by the client.

        Once the handler has an outcome, a lease that is over no longer counts.
        """
        is_over = not self.settled and self.deadline <= bodies.now()
        return self.revoked or self.given_back or is_over

    @property
    def is_due(self) -> bool:
        """True if half of the lease is over, so that it has to be renewed."""
        return bodies.now() > self.deadline - self._half

    @property
    def has_waited(self) -> bool:
        """True if so much of the lease is over that it is renewed before a handler begins."""
        return self.remaining < self.job.lease_seconds * (1 - WAITING_SHARE)

    @property
    def remaining(self) -> float:
        """Seconds until the lease ends."""
        return max(0.0, self.deadline - bodies.now())

    def ack(self, result: Any = None) -> Done:
        """Deliver the job: it is done. `result` is stored for its batch or run.

        Raise TypeError or ValueError, and settle nothing, if JSON can't represent the result.
        """
        copy = json.loads(json.dumps(result, allow_nan=False))
        return self.settle(Outcome.DELIVERED, result=copy)

    def nack(self, delay: float | None = None, reason: str = "") -> Done:
        """Retry the job after `delay` seconds, at most 3600.

        By default the argument `requeue_delay` of the client decides. If that is None, the retry
        strategy of the consumer does.
        """
        if delay is None:
            delay = self.recipient.requeue_delay(self.attempts)
        return self.settle(Outcome.RETRY, None if delay is None else bodies.delay(delay), reason)

    def reject(self, reason: str) -> Done:
        """Make the job DEAD, with this text as its error."""
        return self.settle(Outcome.DEAD, None, reason)

    def release(self) -> Done:
        """Give the job back to the queue, due at once, as if it had never been pulled."""
        return self.settle(Outcome.RELEASE)

    def in_progress(self, seconds: float | None = None) -> Left:
        """Renew the lease to `seconds` from now, by default its duration. Return the seconds left.

        Raise LeaseLost if the lease is lost, Unreachable without an answer in time or if the row of
        the job stays locked.
        """
        if self.revoked or self.given_back:
            raise LeaseLost(self.id)
        return self.recipient.renew(self, seconds)

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report that `done` of `total` units are done. The next renewal of the lease sends this.

        Raise ValueError unless `done` and `total`, if given, are finite numbers of at least 0.
        """
        whole = None if total is None else check_amount("total", total)
        self.report = Progress(check_amount("done", done), whole, str(note))

    def detach(self) -> None:
        """Keep the message open after the handler returns. The caller has to settle it later."""
        self.detached = True

    def settle(
        self,
        outcome: Outcome,
        delay: float | None = None,
        reason: str = "",
        throttle: Throttle | None = None,
        result: Any = None,
    ) -> Done:
        """Have this outcome sent to the broker, unless the message was settled before."""
        settlement = Settlement(self.job, outcome, delay, str(reason), throttle, result)
        with _once:
            if self.settled:
                return self.recipient.done()
            self.settled = True
        return self.recipient.settle(self, settlement)

    def begin(self) -> bool:
        """Note that a handler begins. Return False if the message was settled before."""
        with _once:
            self.begun = not self.settled
            return self.begun

    def give_back(self, *, is_running: bool = False) -> None:
        """Release the message for a reason of the client, such as its stop, if no handler has it.

        With `is_running`, the message is released even if a handler has it: `lost` is then True for
        the handler, and its outcome is discarded.
        """
        with _once:
            if self.settled or (self.begun and not is_running):
                return
            self.settled, self.given_back = True, True
        self.recipient.settle(self, Settlement(self.job, Outcome.RELEASE))

    def renewed(self, deadline: float, report: Progress | None = None) -> None:
        """Note the new end of the lease, a monotonic time, and drop the report that was sent."""
        if self.report is report:
            self.report = None
        self.deadline, self._half = deadline, (deadline - bodies.now()) / 2
        self.ended_by_outage = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of message {self.message_id}>"


class Message(Received[None, float]):
    """Message of a synchronous handler or of a `PullConsumer`."""


class AsyncMessage(Received[Awaitable[None], Awaitable[float]]):
    """Message of an async handler or of an `AsyncPullConsumer`.

    Calls such as `ack`, `nack` and `in_progress` are awaited.
    """
