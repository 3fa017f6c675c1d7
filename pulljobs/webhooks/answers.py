"""What an answer means for the job."""

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final, NamedTuple

from pulljobs.errors import Retry

BUSY: Final = frozenset({429, 503})
"""Answers whose Retry-After is heeded."""
SECONDS: Final = re.compile(r"[0-9]{1,9}")
EXCERPT: Final = 200
ECHO: Final = 12
"""So many letters and digits in a row that were sent, too, are no coincidence."""
BEYOND: Final = 4 * ECHO
"""Characters behind the excerpt that are looked at as well: its end may cut an echo short."""
COMPARED: Final = 64 * 1024


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    """By names in lower case."""
    body: bytes
    """As much of it as was read."""


def judge(answer: Answer, *, sent: bytes, secrets: tuple[str, ...], longest: timedelta) -> None:
    """Return for a 2xx, else raise Retry.

    `sent` and `secrets` are what no error text may repeat, were the other side to echo it.
    """
    if 200 <= answer.status < 300:
        return
    told = [_status(answer.status)]
    if 300 <= answer.status < 400:
        told.append("redirects are not followed")
    if excerpt := safe(answer.body, sent, secrets):
        told.append(excerpt)
    raise Retry(after=_retry_after(answer, longest), reason=": ".join(told))


def _status(status: int) -> str:
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"


def _retry_after(answer: Answer, longest: timedelta) -> timedelta | None:
    """None: the consumer's own delay."""
    text = answer.headers.get("retry-after", "").strip()
    if answer.status not in BUSY or not text:
        return None
    if SECONDS.fullmatch(text):
        wait = timedelta(seconds=int(text))
    else:
        date = _date(text)
        if date is None:
            return None
        # By the other side's clock, if it tells it.
        wait = date - (_date(answer.headers.get("date", "")) or datetime.now(UTC))
    return min(wait, longest) if wait > timedelta() else None


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def safe(body: bytes, sent: bytes, secrets: tuple[str, ...]) -> str:
    """What the other side says, in one line; nothing, where it repeats what was sent to it."""
    text = body[: 4 * EXCERPT].decode("utf-8", "replace")
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    said = line[: EXCERPT + BEYOND]
    if len(sent) > COMPARED or _echoes(said, (sent.decode("utf-8", "replace"), *secrets)):
        return ""
    return line[:EXCERPT]


def _echoes(line: str, sent: tuple[str, ...]) -> bool:
    """Compared by letters and digits, so that quoting and escaping make no difference."""
    said, whole = _letters(line), list(map(_letters, sent))
    pieces = {said[at : at + ECHO] for at in range(max(1, len(said) - ECHO + 1))}
    together = " ".join(whole)
    repeated = any(len(piece) == ECHO and piece in together for piece in pieces)
    return repeated or any(len(one) > 3 and one in said for one in whole)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()
