"""Translation of an endpoint's answer into the outcome of the job: delivered, or a retry."""

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final, NamedTuple

from pulljobs.errors import Retry

BUSY: Final = frozenset({429, 503})
"""Statuses of answers in which the header Retry-After is respected."""
SECONDS: Final = re.compile(r"[0-9]{1,9}")
EXCERPT: Final = 200
ECHO: Final = 12
"""Number of letters and digits in a row that count as an echo of the request."""
BEYOND: Final = 4 * ECHO
"""Number of characters to check after the excerpt, whose end may cut an echo short."""
COMPARED: Final = 64 * 1024


class PushAnswer(NamedTuple):
    """Answer of a consumer's endpoint to a push delivery."""

    status: int
    headers: dict[str, str]
    """Headers by name in lower case."""
    body: bytes
    """Beginning of the body, as far as it was read."""


def judge(answer: PushAnswer, *, sent: bytes, secrets: tuple[str, ...], longest: timedelta) -> None:
    """Raise Retry with the reason unless the status of the answer is 2xx.

    A delay that the endpoint asks for by Retry-After with 429 or 503, at most `longest`, throttles
    all jobs of the consumer. The reason quotes the answer unless `make_excerpt` sees an echo of the
    payload in `sent` or of the `secrets`.
    """
    if 200 <= answer.status < 300:
        return
    reasons = [_status(answer.status)]
    if 300 <= answer.status < 400:
        reasons.append("redirects are not followed")
    if excerpt := make_excerpt(answer.body, sent, secrets):
        reasons.append(excerpt)
    wait = _retry_after(answer, longest)
    raise Retry(after=wait, reason=": ".join(reasons), throttle=wait is not None)


def _status(status: int) -> str:
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"


def _retry_after(answer: PushAnswer, longest: timedelta) -> timedelta | None:
    """Return the delay in Retry-After of a 429 or 503, at most `longest`.

    Return None if there is none that can be read and is not over: the retry strategy decides.
    """
    text = answer.headers.get("retry-after", "").strip()
    if answer.status not in BUSY or not text:
        return None
    if SECONDS.fullmatch(text):
        wait = timedelta(seconds=int(text))
    else:
        date = _date(text)
        if date is None:
            return None
        # by the endpoint's clock, if the answer has a date
        wait = date - (_date(answer.headers.get("date", "")) or datetime.now(UTC))
    return min(wait, longest) if wait > timedelta() else None


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def make_excerpt(body: bytes, sent: bytes, secrets: tuple[str, ...]) -> str:
    """Return the beginning of a body as one line, or "" if it may repeat parts of the request.

    It may if `_echoes` sees a repetition, and always if `sent` has more than COMPARED bytes.
    """
    text = body[: 4 * EXCERPT].decode("utf-8", "replace")
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    checked = line[: EXCERPT + BEYOND]
    if len(sent) > COMPARED or _echoes(checked, (sent.decode("utf-8", "replace"), *secrets)):
        return ""
    return line[:EXCERPT]


def _echoes(line: str, sent: tuple[str, ...]) -> bool:
    """Return True if a line repeats ECHO letters and digits of a sent text in a row, or all of it.

    Case and other characters are ignored, as are texts of up to three letters and digits.
    """
    letters, whole = _letters(line), list(map(_letters, sent))
    pieces = {letters[at : at + ECHO] for at in range(max(1, len(letters) - ECHO + 1))}
    together = " ".join(whole)
    repeated = any(len(piece) == ECHO and piece in together for piece in pieces)
    return repeated or any(len(text) > 3 and text in letters for text in whole)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()
