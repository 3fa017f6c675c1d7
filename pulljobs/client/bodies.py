"""JSON bodies of the lease protocol: functions that write requests and parse answers."""

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
"""Longest throttle in seconds. A broker refuses an outcome with a longer one."""
USUAL_LEASE: Final = 30.0
WAITING_SHARE: Final = 0.1
"""Share of a lease after which a waiting message is renewed before its handler begins."""
BYTES: Final = "application/octet-stream"
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


class Outcome(StrEnum):
    """Outcome of a job, in the words of the ack request."""

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
    """A transaction in the broker's database has the row locked: send the item again later."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the broker for pulls, as its route `info` returns them, in bytes and seconds.

    `clock_ahead` is the server's Unix time minus the local monotonic time at which `info` was sent.
    So it is too high by the time that the request took. It is None if the broker sent no time.
    Comparisons of limits ignore it.
    """

    max_batch: int = 100
    max_expires: float = 60.0
    max_in_flight: int | None = None
    max_payload_bytes: int | None = None
    lease_seconds: float = USUAL_LEASE
    clock_ahead: float | None = field(default=None, compare=False)

    def local(self, moment: datetime) -> float | None:
        """Return the local monotonic time, in seconds, at which the server's clock shows `moment`.

        The result may be a bit too early. It is None if the broker sent no time.
        """
        return None if self.clock_ahead is None else moment.timestamp() - self.clock_ahead


def limits(answer: Answer) -> Limits:
    """Parse the answer of the route `info`. Raise NotFound if it is not that of a broker."""
    try:
        return _limits(answer)
    except (ArithmeticError, TypeError, ValueError) as error:
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
    """Pulled job: its JSON object `given`, and the end of its lease on the monotonic clock."""

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
    """Jobs of a pull, and the broker's reason for sending no more, such as `server_shutdown`."""

    jobs: list[Job]
    reason: str


def pull(
    batch: int, request_id: str, *, expires: float = 0.0, max_bytes: int | None = None
) -> bytes:
    """Return the body of a pull of up to `batch` jobs, which waits `expires` seconds for them.

    A pull with the `request_id` of an earlier pull returns the jobs of that pull.
    """
    asked: dict[str, Any] = {"Batch": batch, "RequestID": request_id}
    asked |= {"Expires": round(expires, 3)} if expires > 0 else {"NoWait": True}
    return _json(asked if max_bytes is None else asked | {"MaxBytes": max_bytes})


def pulled(answer: Answer, limits: Limits, asked_at: float) -> Pulled:
    """Parse the answer to a pull whose first request was sent at `asked_at`, a monotonic time."""
    with _reading(answer) as content:
        given = content["Result"]
        # All jobs of an answer have one lease.
        seconds = _lease_seconds(given[0], limits) if given else 0.0
        deadline = _deadline(given[0], answer, limits, asked_at) if given else 0.0
        reason = (content.get("Status") or {}).get("Reason", "ok")
        return Pulled([Job(_complete(job), deadline, seconds) for job in given], reason)


def _complete(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a pulled job. Raise LookupError if it lacks its id, its lease token or its message."""
    if missing := {"ID", "LeaseToken", "Message"} - job.keys():
        raise LookupError(missing)
    return job


@contextmanager
def _reading(answer: Answer) -> Iterator[dict[str, Any]]:
    """Yield the JSON body of an answer. Errors of the block that parses it become NotFound."""
    try:
        yield answer.json()
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise answer.not_of_a_broker() from error


def _lease_seconds(given: Mapping[str, Any], limits: Limits) -> float:
    return float(given.get("LeaseSeconds") or limits.lease_seconds)


def _deadline(given: Mapping[str, Any], answer: Answer, limits: Limits, asked_at: float) -> float:
    """Return the monotonic time at which the lease of a pulled job ends, or a bit earlier.

    The lease began between the first request, at `asked_at`, and the answer. If the broker sent no
    time, the result may be a bit late.
    """
    seconds = _lease_seconds(given, limits)
    at = given.get("LeaseExpiresAt")
    local = limits.local(datetime.fromisoformat(at)) if at else None
    latest = answer.received_at + seconds
    return latest if local is None else min(max(local, asked_at + seconds), latest)


class Throttle(NamedTuple):
    """Throttle that a handler asks for: of the consumer, or only of the key of its job."""

    seconds: float
    of_key: bool = False


@dataclass(frozen=True, slots=True)
class Settlement:
    """Outcome of one job, as an item of an ack request."""

    job: Job
    outcome: Outcome
    delay: float | None = None
    """Seconds before the job is due again: None for the retry strategy, or at once if released."""
    reason: str = ""
    throttle: Throttle | None = None
    result: Any = None
    """Result of a delivered job, of JSON types."""

    @property
    def can_be_repeated(self) -> bool:
        """True if the broker answers `ok` again when the outcome is sent a second time."""
        return self.outcome in (Outcome.DELIVERED, Outcome.DEAD)


def delay(seconds: float) -> float:
    """Return the delay in seconds, limited to what brokers accept: from 0 to an hour.

    Raise ValueError if it is no number.
    """
    if not isinstance(seconds, int | float) or math.isnan(seconds):
        raise ValueError(f"A delay is a number of seconds, not {seconds!r}.")
    return min(max(seconds, 0.0), LONGEST_DELAY)


def ack(settlements: Iterable[Settlement]) -> bytes:
    """Return the body of an ack request that writes these outcomes."""
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
    if settlement.result is not None:
        fields["Result"] = settlement.result
    if settlement.throttle is not None:
        fields["ThrottleSeconds"] = settlement.throttle.seconds
        fields["ThrottleKey"] = settlement.throttle.of_key
    return fields


class Progress(NamedTuple):
    """Progress of a handler, which the next renewal of its job's lease reports."""

    done: float
    total: float | None
    note: str


def renew(jobs: Iterable[tuple[Job, Progress | None]], seconds: float | None = None) -> bytes:
    """Return the body of a request that renews leases, and reports the progress of handlers.

    `seconds` is the new length of the leases, by default the lease duration of the consumer.
    """
    leases = [_lease(job, progress) for job, progress in jobs]
    return _json({"Leases": leases} | ({} if seconds is None else {"Seconds": seconds}))


def _lease(job: Job, progress: Progress | None) -> dict[str, Any]:
    held: dict[str, Any] = {"ID": job.id, "LeaseToken": job.lease_token}
    if progress is None:
        return held
    fields = {"Done": progress.done, "Total": progress.total, "Note": progress.note}
    return held | {"Progress": fields}


def statuses(answer: Answer, jobs: int) -> list[Status]:
    """Return the statuses in the answer to an ack or a renewal, which named `jobs` jobs."""
    with _reading(answer) as content:
        results = zip(range(jobs), content["Results"], strict=True)
        return [Status(result["Status"]) for _index, result in results]


def renewals(answer: Answer, jobs: int) -> list[float | Status]:
    """Return the seconds left of each lease, or the status of its job if it was not renewed.

    They are in the order of the request, which named `jobs` jobs.
    """
    with _reading(answer) as content:
        return [
            float(result["RemainingSeconds"]) if status is Status.OK else status
            for result, status in zip(content["Results"], statuses(answer, jobs), strict=True)
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
    """Result of the publish of one message.

    `status` is accepted, duplicate, key_full, invalid or too_large. `error` explains the last two.
    """

    message_id: str
    status: str
    error: str | None = None
    replaced: tuple[str, ...] = ()
    """Ids of queued jobs that have this message now, in place of another of its key."""

    @property
    def duplicate(self) -> bool:
        """True if a message with this id had been accepted before, so that none was published."""
        return self.status == "duplicate"


def headers_of(draft: Draft) -> dict[str, str]:
    """Return the headers of a draft. Raise InvalidMessage if they are no mapping."""
    if not isinstance(draft.headers, Mapping):
        raise InvalidMessage(f"headers must be a mapping, not {type(draft.headers).__name__}.")
    return dict(draft.headers)


def line(draft: Draft, message_id: str) -> bytes:
    """Return a draft as a line of the body of a batch publish, or raise InvalidMessage."""
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
    """Parse the answer to a batch publish of messages with these ids, in their order."""
    with _reading(answer) as content:
        return [
            Receipt(id, given["Status"], given.get("Error"), tuple(given.get("ReplacedJobs", ())))
            for id, given in zip(message_ids, content["Results"], strict=True)
        ]


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def now() -> float:
    """Return the time of the monotonic clock, to which all deadlines of the client refer."""
    return time.monotonic()
