"""Requests as values, and procedures made of them that do no I/O themselves.

A flow is a generator: it yields a `Call` and is sent the `Answer`, or `Unreachable` is raised in
it; it yields a `Pause` and goes on after it. `sending` runs flows, synchronously or not.
"""

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass
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
    method: str
    path: str
    """Relative to the broker's base URL."""
    body: bytes = b""
    seconds: float = 10.0
    """Within which something has to be heard."""


class Pause(NamedTuple):
    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """`body` is decompressed."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    received_at: float
    """On the monotonic clock."""

    def json(self) -> Any:
        try:
            told = json.loads(self.body)
        except ValueError:
            told = None
        if not isinstance(told, dict):
            raise NotFound(self.status, "That is no broker's answer: check the URL.")
        return told


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
"""Nothing was done."""
LATER = (408, *TOO_EARLY)


def checked(answer: Answer) -> Answer:
    """Unreachable for what may pass, Refused for what will not."""
    status = answer.status
    if 200 <= status < 300:
        return answer
    sentence, code = _told(answer)
    if status >= 500 or status in LATER:
        raise Unreachable(
            f"The broker answers {status}: {sentence}",
            status=status,
            was_sent=status not in TOO_EARLY,
            retry_after=_retry_after(answer.headers),
        )
    raise REFUSALS.get(status, BadRequest)(status, sentence, code)


def _told(answer: Answer) -> tuple[str, str | None]:
    try:
        problem = json.loads(answer.body)
        return str(problem["detail"]), problem.get("code")
    except (ValueError, TypeError, KeyError):
        text = answer.body[:500].decode("utf-8", "replace").strip()
        return text or f"HTTP status {answer.status}.", None


def _retry_after(headers: Mapping[str, str]) -> float:
    try:
        return max(0.0, float(headers.get("retry-after", 0)))
    except ValueError:  # A date: as if it had said nothing.
        return 0.0
