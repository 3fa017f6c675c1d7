"""Messages for handlers and for callers of `fetch`."""

import json
import threading
from collections.abc import Awaitable
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from pulljobs.client import bodies
from pulljobs.client.bodies import Job, Outcome, Settlement
from pulljobs.engine.circuit import Result

Done = TypeVar("Done")
Left = TypeVar("Left")
Done_co = TypeVar("Done_co", covariant=True)
Left_co = TypeVar("Left_co", covariant=True)

_once = threading.Lock()


class Recipient(Protocol[Done_co, Left_co]):
    """Recipient of outcomes, which go to the broker at once or into a batch."""

    def settle(self, message: Any, settlement: Settlement) -> Done_co: ...

    def renew(self, message: Any, seconds: float | None) -> Left_co: ...

    def done(self) -> Done_co:
        """Return what `settle` returns, for a message that was settled before."""
        ...

    def requeue_delay(self, attempts: int) -> float | None: ...


class Received(Generic[Done, Left]):
    """Message of a pull; the first of `ack`, `nack`, `reject` and `release` ends it."""

    def __init__(self, job: Job, recipient: Recipient[Done, Left]) -> None:
        self.recipient = recipient
        self.job = job
        self.deadline = job.deadline
        """End of the lease, on the monotonic clock."""
        self.settled = False
        self.lost = False
        """True if the lease is known to be lost: outcomes have no effect."""
        self.detached = False
        self.ticket = 0
        """Ticket of the circuit, in a `Consumer`."""
        self.result: Result | None = None
        """Result for the circuit; None: that of the outcome."""

    @property
    def id(self) -> str:
        """Public id of the job."""
        return self.job.id

    @property
    def message_id(self) -> str:
        """Id that the producer gave the message."""
        return str(self.job.message["MessageID"])

    @property
    def payload(self) -> bytes:
        """Payload as bytes."""
        return self.job.payload

    def json(self) -> Any:
        """Decode the payload as JSON; raise ValueError if it is not JSON."""
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
        """Number of deliveries, this one included."""
        return int(self.job.given.get("Deliveries") or 1)

    @property
    def timestamp(self) -> datetime:
        """Time of publish."""
        return datetime.fromisoformat(self.job.message["PublishedAt"])

    @property
    def key(self) -> str | None:
        """Key of the message, if it has one."""
        return self.job.given.get("Key")

    @property
    def priority(self) -> int:
        """Priority of the message."""
        return int(self.job.given.get("Priority") or 0)

    @property
    def remaining(self) -> float:
        """Seconds until the lease ends."""
        return max(0.0, self.deadline - bodies.now())

    def ack(self) -> Done:
        """Acknowledge the message: the job is done."""
        return self.settle(Outcome.DELIVERED)

    def nack(self, delay: float | None = None, reason: str = "") -> Done:
        """Requeue the message after `delay` seconds (up to 3600), by default the requeue delay."""
        if delay is None:
            delay = self.recipient.requeue_delay(self.attempts)
        return self.settle(Outcome.RETRY, None if delay is None else bodies.delay(delay), reason)

    def reject(self, reason: str) -> Done:
        """Give the job up: it is DEAD with this text as its error."""
        return self.settle(Outcome.DEAD, None, reason)

    def release(self) -> Done:
        """Release the message at once, as if it had never been pulled."""
        return self.settle(Outcome.RELEASE)

    def in_progress(self, seconds: float | None = None) -> Left:
        """Renew the lease by `seconds`, by default by its duration; return the seconds left."""
        return self.recipient.renew(self, seconds)

    def detach(self) -> None:
        """Keep the message open after a `Consumer`'s handler returns; it is settled later."""
        self.detached = True

    def settle(self, outcome: Outcome, delay: float | None = None, reason: str = "") -> Done:
        """Settle the message, unless it was settled before."""
        with _once:
            if self.settled:
                return self.recipient.done()
            self.settled = True
        return self.recipient.settle(self, Settlement(self.job, outcome, delay, reason))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of message {self.message_id}>"


class Message(Received[None, float]):
    """Message of a synchronous consumer."""


class AsyncMessage(Received[Awaitable[None], Awaitable[float]]):
    """Message of an asynchronous consumer: `ack`, `nack`, `in_progress` and so on are awaited."""
