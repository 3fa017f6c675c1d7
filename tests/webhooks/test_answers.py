"""Outcomes of push deliveries by the endpoint's answer, and the part of it that errors quote."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from pulljobs.errors import Retry
from pulljobs.webhooks.answers import EXCERPT, PushAnswer, judge

HOUR = timedelta(hours=1)
NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


def reason_of(
    status: int = 500,
    body: bytes = b"",
    *,
    sent: bytes = b"",
    secrets: tuple[str, ...] = (),
    **headers: str,
) -> Retry:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with pytest.raises(Retry) as raised:
        judge(PushAnswer(status, named, body), sent=sent, secrets=secrets, longest=HOUR)
    return raised.value


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7),
        (" 120 ", 120),
        ("999999999", 3600),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90),
        (format_datetime(NOW + timedelta(days=9), usegmt=True), 3600),
        ("0", None),
        ("-5", None),
        ("soon", None),
        ("1.5", None),
        ("9" * 5000, None),
        (format_datetime(NOW - timedelta(seconds=90), usegmt=True), None),
        ("Sat, 99 Nov 2026 99:99:99 GMT", None),
        ("Sat, 21 Nov 99999999999999 12:00:00 GMT", None),
        ("", None),
    ],
)
def test_retry_after_is_heeded_within_bounds(status: int, text: str, seconds: int | None) -> None:
    """A Retry-After above 0 is the delay, up to an hour. A date counts from the answer's Date."""
    retry = reason_of(status, date=format_datetime(NOW, usegmt=True), retry_after=text)
    assert retry.after == (None if seconds is None else timedelta(seconds=seconds))


def test_date_without_a_clock_counts_by_ours() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    after = reason_of(503, retry_after=soon).after
    assert after is not None
    assert timedelta(seconds=90) < after <= timedelta(seconds=100)


@pytest.mark.parametrize("status", [301, 400, 404, 500, 502])
def test_retry_after_of_other_answers_is_not(status: int) -> None:
    assert reason_of(status, retry_after="7").after is None


def test_an_answer_is_quoted_in_one_short_line() -> None:
    reason = reason_of(500, b"\x00  out of\r\n\x1b[31m stock \xff" + b"!" * 1000).reason
    assert reason.startswith("HTTP 500 Internal Server Error: out of [31m stock \ufffd!!!")
    assert len(reason) < 250


TOKEN = "the-token-of-the-consumer"
PAYLOAD = b'{"card": "4111 1111 1111 1111", "name": "Ada Lovelace"}'


@pytest.mark.parametrize(
    "body",
    [
        b"got " + PAYLOAD,
        rb"invalid: {\"card\": \"4111 1111 1111 1111\"}",
        b"no such card: 4111-1111-1111-1111",
        b"bad token the-token-of-the-consumer",
        b"bad token THE_TOKEN_OF_THE_CONSUMER!",
    ],
)
def test_text_that_was_sent_is_not_quoted(body: bytes) -> None:
    reason = reason_of(400, body, sent=PAYLOAD, secrets=(TOKEN,)).reason
    assert reason == "HTTP 400 Bad Request"


@pytest.mark.parametrize("before", range(EXCERPT - len(TOKEN), EXCERPT))
def test_a_token_that_the_excerpt_cuts_is_not_quoted_in_part(before: int) -> None:
    body = b"." * before + TOKEN.encode() + b"." * EXCERPT
    assert reason_of(400, body, secrets=(TOKEN,)).reason == "HTTP 400 Bad Request"


def test_a_token_that_the_answer_cuts_is_not_quoted_in_part() -> None:
    body = f"bad token {TOKEN[:20]}".encode()
    assert reason_of(400, body, secrets=(TOKEN,)).reason == "HTTP 400 Bad Request"


def test_short_payloads_are_not_quoted_either() -> None:
    assert reason_of(400, b"what is hush?", sent=b"hush").reason == "HTTP 400 Bad Request"
    assert (
        reason_of(400, b"what is this?", sent=b"1").reason == "HTTP 400 Bad Request: what is this?"
    )
