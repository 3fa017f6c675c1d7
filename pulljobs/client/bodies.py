"""The JSON that the client sends and reads."""

import base64
import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from pulljobs.client.calls import Answer
from pulljobs.errors import InvalidMessage

LONGEST_TEXT: Final = 2000
LONGEST_DELAY: Final = 3600.0
BYTES: Final = "application/octet-stream"
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


class Outcome(StrEnum):
    DELIVERED = "DELIVERED"
    DEAD = "DEAD"
    RETRY = "RETRY"
    RELEASE = "RELEASE"


class Status(StrEnum):
    """Of a job in the answer to an ack or a renewal."""

    OK = "ok"
    LEASE_LOST = "lease_lost"
    NOT_FOUND = "not_found"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Limits:
    """What `info` tells a client to respect; `clock_ahead`: by how much the server's clock is.

    That one is measured: limits may be the same without it.
    """

    max_batch: int = 100
    max_expires: float = 60.0
    max_in_flight: int | None = None
    max_payload_bytes: int | None = None
    lease_seconds: float = 30.0
    clock_ahead: float | None = field(default=None, compare=False)

    def local(self, moment: datetime) -> float | None:
        """A moment of the server's on our monotonic clock, if that can be told."""
        return None if self.clock_ahead is None else moment.timestamp() - self.clock_ahead


def limits(answer: Answer, sent_at: float) -> Limits:
    told = answer.json()
    usual = Limits()
    now = told.get("Now")
    middle = (sent_at + answer.received_at) / 2
    return Limits(
        int(told.get("MaxBatch") or usual.max_batch),
        float(told.get("MaxExpires", usual.max_expires)),
        told.get("MaxInFlight") or None,
        told.get("MaxPayloadBytes"),
        float(told.get("LeaseSeconds", usual.lease_seconds)),
        datetime.fromisoformat(now).timestamp() - middle if now else None,
    )


@dataclass(frozen=True, slots=True)
class Job:
    """A job as a pull gave it, and when its lease ends on our monotonic clock."""

    given: Mapping[str, Any]
    deadline: float

    @property
    def id(self) -> str:
        return str(self.given["ID"])

    @property
    def lease_token(self) -> str:
        return str(self.given["LeaseToken"])

    @property
    def message(self) -> Mapping[str, Any]:
        return self.given["Message"]  # type: ignore[no-any-return]  # JSON

    @property
    def payload(self) -> bytes:
        text = self.message["Payload"]
        if self.message.get("PayloadEncoding") == "base64":
            return base64.b64decode(text)
        return str(text).encode()


class Pulled(NamedTuple):
    """`reason` says why there are no more; it is never a message."""

    jobs: list[Job]
    reason: str


def pull(
    batch: int, request_id: str, *, expires: float = 0.0, max_bytes: int | None = None
) -> bytes:
    asked: dict[str, Any] = {"Batch": batch, "RequestID": request_id}
    asked |= {"Expires": round(expires, 3)} if expires > 0 else {"NoWait": True}
    return _json(asked if max_bytes is None else asked | {"MaxBytes": max_bytes})


def pulled(answer: Answer, limits: Limits, asked_at: float) -> Pulled:
    """`asked_at`: when it was asked first, on the monotonic clock."""
    told = answer.json()
    given = told["Result"]
    # All jobs of an answer have one lease.
    deadline = _deadline(given[0], answer, limits, asked_at) if given else 0.0
    reason = (told.get("Status") or {}).get("Reason", "ok")
    return Pulled([Job(one, deadline) for one in given], reason)


def _deadline(given: Mapping[str, Any], answer: Answer, limits: Limits, asked_at: float) -> float:
    """The lease began between the first request and the answer, whatever clocks say."""
    seconds = float(given.get("LeaseSeconds") or limits.lease_seconds)
    at = given.get("LeaseExpiresAt")
    local = limits.local(datetime.fromisoformat(at)) if at else None
    latest = answer.received_at + seconds
    return latest if local is None else min(max(local, asked_at + seconds), latest)


@dataclass(frozen=True, slots=True)
class Word:
    """What is said of a job, once."""

    job: Job
    outcome: Outcome
    delay: float | None = None
    """Seconds; None: as the consumer's own retry strategy has it."""
    reason: str = ""

    @property
    def can_be_repeated(self) -> bool:
        """Whether saying it again is answered as the first time."""
        return self.outcome in (Outcome.DELIVERED, Outcome.DEAD)


def delay(seconds: float) -> float:
    """As brokers take it: from 0 to an hour."""
    if math.isnan(seconds):
        raise ValueError("A delay is a number of seconds, not NaN.")
    return min(max(seconds, 0.0), LONGEST_DELAY)


def ack(words: Iterable[Word]) -> bytes:
    return _json({"Results": [_said(word) for word in words]})


def _said(word: Word) -> dict[str, Any]:
    said: dict[str, Any] = {
        "ID": word.job.id,
        "LeaseToken": word.job.lease_token,
        "Outcome": word.outcome,
    }
    if word.delay is not None:
        said["DelaySeconds"] = word.delay
    if word.reason:
        said["Reason"] = str(word.reason)[:LONGEST_TEXT]
    return said


def renew(jobs: Iterable[Job], seconds: float | None = None) -> bytes:
    leases = [{"ID": job.id, "LeaseToken": job.lease_token} for job in jobs]
    return _json({"Leases": leases} | ({} if seconds is None else {"Seconds": seconds}))


def statuses(answer: Answer) -> list[Status]:
    """In the order of what was asked."""
    return [Status(one["Status"]) for one in answer.json()["Results"]]


def remaining(answer: Answer) -> list[float | None]:
    """Seconds that each lease goes on, in the order asked; None: it is lost."""
    return [one.get("RemainingSeconds") for one in answer.json()["Results"]]


@dataclass(frozen=True, kw_only=True)
class Draft:
    """One message of `publish_many`; the fields are the arguments of `publish`.

    `payload` is bytes, text, or what `json.dumps` takes.
    """

    payload: Any
    key: str | None = None
    priority: int = 0
    message_id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str | None = None


class Receipt(NamedTuple):
    """`status`: accepted, duplicate, key_full, invalid or too_large; `error` says why it is not."""

    message_id: str
    status: str
    error: str | None = None

    @property
    def duplicate(self) -> bool:
        """An earlier message of this id was accepted before; there is no second one."""
        return self.status == "duplicate"


def line(draft: Draft, message_id: str) -> bytes:
    """Of a batch."""
    try:
        return _line(draft, message_id)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessage(
            f"The message can't be encoded ({error}): give bytes, text or plain values."
        ) from error


def _line(draft: Draft, message_id: str) -> bytes:
    payload, content_type = draft.payload, draft.content_type
    said: dict[str, Any] = {"MessageID": message_id}
    if isinstance(payload, bytes):
        said["PayloadBase64"] = base64.b64encode(payload).decode()
        content_type = content_type or BYTES
    elif isinstance(payload, str):
        said["Payload"], content_type = payload, content_type or TEXT
    else:
        said["Payload"] = json.dumps(payload, allow_nan=False)
        content_type = content_type or JSON
    said |= {"ContentType": content_type, "Headers": dict(draft.headers)}
    said |= {"Priority": draft.priority}
    return _json(said if draft.key is None else said | {"Key": draft.key})


def receipts(answer: Answer, message_ids: Sequence[str]) -> list[Receipt]:
    told = answer.json()["Results"]
    return [
        Receipt(id, one["Status"], one.get("Error"))
        for id, one in zip(message_ids, told, strict=True)
    ]


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def now() -> float:
    """Of all deadlines in the client."""
    return time.monotonic()
