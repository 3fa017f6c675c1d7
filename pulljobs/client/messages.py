"""A message as handlers and callers of `fetch` see it."""

import json
import threading
from collections.abc import Awaitable
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from pulljobs.client import bodies
from pulljobs.client.bodies import Job, Outcome, Word
from pulljobs.engine.circuit import Result

Done = TypeVar("Done")
Left = TypeVar("Left")
Done_co = TypeVar("Done_co", covariant=True)
Left_co = TypeVar("Left_co", covariant=True)

_once = threading.Lock()


class Desk(Protocol[Done_co, Left_co]):
    """Where words about messages go: to the broker at once, or into a batch."""

    def settle(self, message: Any, word: Word) -> Done_co: ...

    def renew(self, message: Any, seconds: float | None) -> Left_co: ...

    def done(self) -> Done_co:
        """When there is nothing to do."""
        ...

    def requeue_delay(self, attempts: int) -> float | None: ...


class Received(Generic[Done, Left]):
    """`ack`, `nack` and `reject` end it: the first of them counts, others are ignored."""

    def __init__(self, job: Job, desk: Desk[Done, Left]) -> None:
        self.desk = desk
        self.job = job
        self.deadline = job.deadline
        """When the lease ends, on the monotonic clock."""
        self.settled = False
        self.lost = False
        """The lease is known to be lost: whatever is said has no effect."""
        self.detached = False
        self.ticket = 0
        """Of the circuit, in a `Consumer`."""
        self.result: Result | None = None
        """What its end says of whether the next would succeed, if not what the outcome says."""

    @property
    def id(self) -> str:
        """Of the job."""
        return self.job.id

    @property
    def message_id(self) -> str:
        return str(self.job.message["MessageID"])

    @property
    def payload(self) -> bytes:
        return self.job.payload

    def json(self) -> Any:
        return json.loads(self.payload)

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.job.message.get("Headers") or {})

    @property
    def content_type(self) -> str:
        return str(self.job.message.get("ContentType") or bodies.BYTES)

    @property
    def attempts(self) -> int:
        """How often it was handed out, this time counted."""
        return int(self.job.given.get("Deliveries") or 1)

    @property
    def timestamp(self) -> datetime:
        """When it was published."""
        return datetime.fromisoformat(self.job.message["PublishedAt"])

    @property
    def key(self) -> str | None:
        return self.job.given.get("Key")

    @property
    def priority(self) -> int:
        return int(self.job.given.get("Priority") or 0)

    @property
    def remaining(self) -> float:
        """Seconds that the lease goes on."""
        return max(0.0, self.deadline - bodies.now())

    def ack(self) -> Done:
        """It is done."""
        return self.say(Outcome.DELIVERED)

    def nack(self, delay: float | None = None, reason: str = "") -> Done:
        """Again after so many seconds (an hour at the most), or after the requeue delay."""
        if delay is None:
            delay = self.desk.requeue_delay(self.attempts)
        return self.say(Outcome.RETRY, None if delay is None else bodies.delay(delay), reason)

    def reject(self, reason: str) -> Done:
        """Give it up: DEAD, with this text as its error."""
        return self.say(Outcome.DEAD, None, reason)

    def release(self) -> Done:
        """Back at once, as if it had never been pulled."""
        return self.say(Outcome.RELEASE)

    def in_progress(self, seconds: float | None = None) -> Left:
        """A new lease from now, of the consumer's length or as asked; how long it goes on."""
        return self.desk.renew(self, seconds)

    def detach(self) -> None:
        """In a handler of a `Consumer`: what it returns shall not end the message; say so later."""
        self.detached = True

    def say(self, outcome: Outcome, delay: float | None = None, reason: str = "") -> Done:
        """What `ack` and the others do."""
        with _once:
            if self.settled:
                return self.desk.done()
            self.settled = True
        return self.desk.settle(self, Word(self.job, outcome, delay, reason))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of message {self.message_id}>"


class Message(Received[None, float]):
    pass


class AsyncMessage(Received[Awaitable[None], Awaitable[float]]):
    """The same; what talks to the broker is awaited."""
