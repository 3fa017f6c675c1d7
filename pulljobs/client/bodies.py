"""JSON bodies that the client sends and reads."""

import base64
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from pulljobs.client.calls import Answer
from pulljobs.errors import InvalidMessage

LONGEST_TEXT: Final = 2000
LONGEST_DELAY: Final = 3600.0
LONGEST_THROTTLE: Final = 365 * 86_400.0
"""Seconds. A broker refuses an outcome with a longer throttle."""
USUAL_LEASE: Final = 30.0
WAITING_SHARE: Final = 0.1
"""Share of a lease after which a message that waits is renewed before it is begun."""
BYTES: Final = "application/octet-stream"
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


class Outcome(StrEnum):
    """Outcome of a message in an ack."""

    DELIVERED = "DELIVERED"
    DEAD = "DEAD"
    RETRY = "RETRY"
    RELEASE = "RELEASE"


class Status(StrEnum):
    """Status of a job in the answer to an ack or a renewal."""

    OK = "ok"
    LEASE_LOST = "lease_lost"
    NOT_FOUND = "not_found"
    REFUSED = "refused"
    LOCKED = "locked"
    """A transaction on the broker's database keeps the row locked: repeat the item."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the broker for pulls, as `info` returns them, in bytes and seconds.

    `clock_ahead` is the highest possible offset of the server's clock from the local monotonic one.
    It does not count in comparisons.
    """

    max_batch: int = 100
    max_expires: float = 60.0
    max_in_flight: int | None = None
    max_payload_bytes: int | None = None
    lease_seconds: float = USUAL_LEASE
    clock_ahead: float | None = field(default=None, compare=False)

    def local(self, moment: datetime) -> float | None:
        """Return a time of the server on the local monotonic clock, or None without an offset."""
        return None if self.clock_ahead is None else moment.timestamp() - self.clock_ahead


def limits(answer: Answer) -> Limits:
    """Read the limits in the answer of `info`. Raise NotFound if they are none."""
    try:
        return _limits(answer)
    except (TypeError, ValueError) as error:
        raise answer.not_of_a_broker() from error


def _limits(answer: Answer) -> Limits:
    content = answer.json()
    usual = Limits()
    now = content.get("Now")
    return Limits(
        int(content.get("MaxBatch") or usual.max_batch),
        float(content.get("MaxExpires", usual.max_expires)),
        content.get("MaxInFlight") or None,
        content.get("MaxPayloadBytes"),
        float(content.get("LeaseSeconds", usual.lease_seconds)),
        # The request may have waited for long on its way back, and a deadline must not be late.
        datetime.fromisoformat(now).timestamp() - answer.sent_at if now else None,
    )


@dataclass(frozen=True, slots=True)
class Job:
    """Job of a pull, with the end of its lease on the local monotonic clock."""

    given: Mapping[str, Any]
    deadline: float
    lease_seconds: float = USUAL_LEASE
    """Seconds of a full lease."""

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
    """Jobs of a pull, and the reason why there are no more."""

    jobs: list[Job]
    reason: str


def pull(
    batch: int, request_id: str, *, expires: float = 0.0, max_bytes: int | None = None
) -> bytes:
    asked: dict[str, Any] = {"Batch": batch, "RequestID": request_id}
    asked |= {"Expires": round(expires, 3)} if expires > 0 else {"NoWait": True}
    return _json(asked if max_bytes is None else asked | {"MaxBytes": max_bytes})


def pulled(answer: Answer, limits: Limits, asked_at: float) -> Pulled:
    """Parse the answer to a pull that was first sent at `asked_at`, on the monotonic clock."""
    with _reading(answer) as content:
        given = content["Result"]
        # All jobs of an answer have one lease.
        seconds = _lease_seconds(given[0], limits) if given else 0.0
        deadline = _deadline(given[0], answer, limits, asked_at) if given else 0.0
        reason = (content.get("Status") or {}).get("Reason", "ok")
        return Pulled([Job(job, deadline, seconds) for job in given], reason)


@contextmanager
def _reading(answer: Answer) -> Iterator[dict[str, Any]]:
    """Yield the body of an answer. Raise NotFound if the block finds it to be no broker's."""
    try:
        yield answer.json()
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise answer.not_of_a_broker() from error


def _lease_seconds(given: Mapping[str, Any], limits: Limits) -> float:
    return float(given.get("LeaseSeconds") or limits.lease_seconds)


def _deadline(given: Mapping[str, Any], answer: Answer, limits: Limits, asked_at: float) -> float:
    """Return the end of the lease, which began between the first request and the answer."""
    seconds = _lease_seconds(given, limits)
    at = given.get("LeaseExpiresAt")
    local = limits.local(datetime.fromisoformat(at)) if at else None
    latest = answer.received_at + seconds
    return latest if local is None else min(max(local, asked_at + seconds), latest)


class Throttle(NamedTuple):
    """Time for which no process claims jobs of the consumer, or of the key of a job."""

    seconds: float
    of_key: bool = False


@dataclass(frozen=True, slots=True)
class Settlement:
    """Outcome of one job, with its delay and its reason."""

    job: Job
    outcome: Outcome
    delay: float | None = None
    """Seconds, or None for the retry strategy of the consumer."""
    reason: str = ""
    throttle: Throttle | None = None
    """Time for which no job of the consumer or of the key is claimed."""

    @property
    def can_be_repeated(self) -> bool:
        """True if the broker answers a repeat like the first request."""
        return self.outcome in (Outcome.DELIVERED, Outcome.DEAD)


def delay(seconds: float) -> float:
    """Limit a delay to the range of brokers, from 0 to an hour."""
    if not isinstance(seconds, int | float) or math.isnan(seconds):
        raise ValueError(f"A delay is a number of seconds, not {seconds!r}.")
    return min(max(seconds, 0.0), LONGEST_DELAY)


def ack(settlements: Iterable[Settlement]) -> bytes:
    return _json({"Results": [_result(settlement) for settlement in settlements]})


def _result(settlement: Settlement) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "ID": settlement.job.id,
        "LeaseToken": settlement.job.lease_token,
        "Outcome": settlement.outcome,
    }
    if settlement.delay is not None:
        fields["DelaySeconds"] = settlement.delay
    if settlement.reason:
        fields["Reason"] = str(settlement.reason)[:LONGEST_TEXT]
    if settlement.throttle is not None:
        fields["ThrottleSeconds"] = settlement.throttle.seconds
        fields["ThrottleKey"] = settlement.throttle.of_key
    return fields


class Progress(NamedTuple):
    """Progress of a job, which its next renewal reports."""

    done: float
    total: float | None
    note: str


def renew(jobs: Iterable[tuple[Job, Progress | None]], seconds: float | None = None) -> bytes:
    """Ask for renewals of leases, and report the progress of the jobs that have any."""
    leases = [_lease(job, progress) for job, progress in jobs]
    return _json({"Leases": leases} | ({} if seconds is None else {"Seconds": seconds}))


def _lease(job: Job, progress: Progress | None) -> dict[str, Any]:
    held: dict[str, Any] = {"ID": job.id, "LeaseToken": job.lease_token}
    if progress is None:
        return held
    fields = {"Done": progress.done, "Total": progress.total, "Note": progress.note}
    return held | {"Progress": fields}


def statuses(answer: Answer) -> list[Status]:
    """Return the statuses of an answer, in the order of the request."""
    with _reading(answer) as content:
        return [Status(result["Status"]) for result in content["Results"]]


def renewals(answer: Answer) -> list[float | Status]:
    """Return the seconds left of each lease, or the status of one that was not renewed.

    They are in the order of the request.
    """
    with _reading(answer) as content:
        return [
            float(result["RemainingSeconds"]) if status is Status.OK else status
            for result, status in zip(content["Results"], statuses(answer), strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class Draft:
    """Message for `publish_many`, with the arguments of `publish` as its fields.

    `payload` is bytes, text, or a value for `json.dumps`.
    """

    payload: Any
    key: str | None = None
    priority: int = 0
    cost: int = 1
    message_id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str | None = None


class Receipt(NamedTuple):
    """Receipt of a message.

    `status` is accepted, duplicate, key_full, invalid or too_large. `error` explains a refusal.
    """

    message_id: str
    status: str
    error: str | None = None

    @property
    def duplicate(self) -> bool:
        """True if an earlier message with this id was accepted: no second one was made."""
        return self.status == "duplicate"


def headers_of(draft: Draft) -> dict[str, str]:
    """Return the headers of a draft. Raise InvalidMessage if they are no mapping."""
    if not isinstance(draft.headers, Mapping):
        raise InvalidMessage(f"headers must be a mapping, not {type(draft.headers).__name__}.")
    return dict(draft.headers)


def line(draft: Draft, message_id: str) -> bytes:
    """Encode a line of a batch. Raise InvalidMessage if the payload cannot be encoded."""
    try:
        return _line(draft, message_id)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessage(
            f"The message cannot be encoded ({error}): give bytes, text or plain values."
        ) from error


def _line(draft: Draft, message_id: str) -> bytes:
    payload, content_type = draft.payload, draft.content_type
    fields: dict[str, Any] = {"MessageID": message_id}
    if isinstance(payload, bytes | bytearray | memoryview):
        fields["PayloadBase64"] = base64.b64encode(payload).decode()
        content_type = content_type or BYTES
    elif isinstance(payload, str):
        fields["Payload"], content_type = payload, content_type or TEXT
    else:
        fields["Payload"] = json.dumps(payload, allow_nan=False)
        content_type = content_type or JSON
    fields |= {"ContentType": content_type, "Headers": dict(draft.headers)}
    fields |= {"Priority": draft.priority}
    if draft.cost != 1:  # An older broker knows none.
        fields["Cost"] = draft.cost
    return _json(fields if draft.key is None else fields | {"Key": draft.key})


def receipts(answer: Answer, message_ids: Sequence[str]) -> list[Receipt]:
    with _reading(answer) as content:
        return [
            Receipt(id, result["Status"], result.get("Error"))
            for id, result in zip(message_ids, content["Results"], strict=True)
        ]


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def now() -> float:
    """Read the monotonic clock, to which all deadlines of the client refer."""
    return time.monotonic()
