"""Requests as values, and flows: sequences of requests without I/O.

A flow is a generator. It yields a `Call` and receives the `Answer`, or `Unreachable` is raised in
it. It yields a `Pause` and continues after it. The senders of `sending` run flows, one of them
synchronously and one asynchronously.
"""

import json
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from typing import Any, NamedTuple, TypeVar

from pulljobs.client.errors import (
    BadRequest,
    NotAllowed,
    NotFound,
    NotPullable,
    Refused,
    Unreachable,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """Request to a broker."""

    method: str
    path: str
    """Path below the broker's base URL."""
    body: bytes = b""
    seconds: float = 10.0
    """Time limit in seconds for each write and each read. A connection gets 5 s at most."""


class Pause(NamedTuple):
    """Request of a flow to its sender to continue it after this time."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a broker, with its `body` decompressed."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    sent_at: float
    """Time on the monotonic clock at which the request was begun."""
    received_at: float
    """Time on the monotonic clock at which the answer was complete."""

    def json(self) -> Any:
        """Return the body, a JSON object. Raise NotFound if it is anything else."""
        try:
            content = json.loads(self.body)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise self.not_of_a_broker()
        return content

    def not_of_a_broker(self) -> NotFound:
        """Return the error to raise for this answer, because no broker answers like this."""
        return NotFound(self.status, "The answer is not that of a broker: check the URL.")


Flow = Generator[Call | Pause, Answer | None, T]

REFUSALS: Mapping[int, type[Refused]] = {
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    405: NotFound,
    410: NotPullable,
    412: NotPullable,
}
TOO_EARLY = (425, 429)
"""Statuses after which the broker has done nothing."""
LATER = (408, *TOO_EARLY)
"""Statuses below 500 after which a repeat may help."""
LONGEST_RETRY_AFTER = 300.0
"""Seconds after which a request is repeated although the `Retry-After` is longer."""

LONGEST_QUOTE = 500
"""Number of characters of an answer that an error quotes."""


def checked(answer: Answer) -> Answer:
    """Return the answer if it has a status 2xx.

    Otherwise raise Unreachable if a repeat may help, or else Refused."""
    status = answer.status
    if 200 <= status < 300:
        return answer
    sentence, code = _problem(answer)
    if status >= 500 or status in LATER:
        raise Unreachable(
            f"The broker answers {status}: {sentence}",
            status=status,
            was_sent=status not in TOO_EARLY,
            retry_after=_retry_after(answer.headers),
        )
    usual = NotFound if status < 400 else BadRequest  # No broker redirects.
    raise REFUSALS.get(status, usual)(status, sentence, code)


def _problem(answer: Answer) -> tuple[str, str | None]:
    try:
        problem = json.loads(answer.body)
        return str(problem["detail"])[:LONGEST_QUOTE], problem.get("code")
    except (ValueError, TypeError, KeyError, RecursionError):
        return _describe_foreign(answer), None


def _describe_foreign(answer: Answer) -> str:
    """Return a sentence for an answer that is not that of the lease protocol."""
    status, target = answer.status, answer.headers.get("location")
    if 300 <= status < 400 and target:
        where = target[:LONGEST_QUOTE]
        return f"The server redirects to {where} (status {status}): use the URL of the broker."
    if "html" in answer.headers.get("content-type", ""):
        return f"A page of HTML came with the status {status}: check the URL, and proxies if any."
    text = answer.body[:LONGEST_QUOTE].decode("utf-8", "replace").strip()
    return text or f"HTTP status {status}."


def _retry_after(headers: Mapping[str, str]) -> float:
    given = headers.get("retry-after", "0")
    try:
        seconds = float(given)
    except ValueError:
        now = _timestamp(headers.get("date", "")) or time.time()  # by the broker's clock if known
        seconds = (_timestamp(given) or now) - now
    return min(max(0.0, seconds), LONGEST_RETRY_AFTER)


def _timestamp(date: str) -> float | None:
    """Return the Unix time of a date of HTTP, or None for any other text."""
    parts = parsedate_tz(date)
    try:
        return None if parts is None else mktime_tz(parts)
    except (ValueError, OverflowError):
        return None
