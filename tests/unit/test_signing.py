"""Signatures of the Standard Webhooks specification."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulljobs.signing import InvalidSignature, new_secret, sign, verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
AT = 1614265330
BODY = b'{"test": 2432232314}'
OTHER = "whsec_" + "A" * 44

# From the documentation of the specification.
VECTOR = {
    "webhook-id": ID,
    "webhook-timestamp": str(AT),
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}


def test_signature_is_that_of_the_specification() -> None:
    assert sign([SECRET], ID, BODY, timestamp=AT) == VECTOR
    assert verify(SECRET, VECTOR, BODY, now=AT) == ID


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1), st.binary())
def test_a_signed_body_is_verified(id: str, body: bytes) -> None:
    secret = new_secret()
    assert verify(secret, sign([secret], id, body), body) == id


@pytest.mark.parametrize(
    "changed",
    [
        {"webhook-id": "msg_other"},
        {"webhook-timestamp": str(AT + 1)},
        {"webhook-signature": VECTOR["webhook-signature"].replace("g0", "g1")},
        {"webhook-signature": VECTOR["webhook-signature"].replace("v1,", "v2,")},
        {"webhook-signature": VECTOR["webhook-signature"].removeprefix("v1,")},
        {"webhook-signature": "v1,"},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,\udcff"},
        {"webhook-id": "\u00e9"},
        {"webhook-timestamp": "soon"},
        {"webhook-timestamp": "9" * 5000},
        {"webhook-timestamp": "-1"},
        {"webhook-timestamp": ""},
    ],
)
def test_anything_else_is_refused(changed: dict[str, str]) -> None:
    with pytest.raises(InvalidSignature):
        verify(SECRET, VECTOR | changed, BODY, now=AT)


@pytest.mark.parametrize("name", VECTOR)
def test_no_header_may_be_missing(name: str) -> None:
    with pytest.raises(InvalidSignature):
        verify(
            SECRET, {header: VECTOR[header] for header in VECTOR if header != name}, BODY, now=AT
        )


def test_another_body_or_secret_is_refused() -> None:
    for secret, body in ((SECRET, BODY + b" "), (OTHER, BODY)):
        with pytest.raises(InvalidSignature):
            verify(secret, VECTOR, body, now=AT)


@pytest.mark.parametrize(
    ("seconds", "is_good"), [(300, True), (-300, True), (301, False), (-301, False)]
)
def test_a_timestamp_may_be_five_minutes_off_in_either_direction(
    seconds: int, is_good: bool
) -> None:
    if is_good:
        assert verify(SECRET, VECTOR, BODY, now=AT + seconds) == ID
        return
    with pytest.raises(InvalidSignature):
        verify(SECRET, VECTOR, BODY, now=AT + seconds)
    assert verify(SECRET, VECTOR, BODY, now=AT + seconds, tolerance=timedelta(hours=1)) == ID


def test_both_secrets_are_valid_while_one_replaces_the_other() -> None:
    """A request signed by two secrets passes with either, and a receiver may accept two secrets."""
    signed = sign([OTHER, SECRET], ID, BODY, timestamp=AT)
    assert len(signed["webhook-signature"].split()) == 2
    assert {verify(secret, signed, BODY, now=AT) for secret in (SECRET, OTHER)} == {ID}
    assert verify([OTHER, SECRET], VECTOR, BODY, now=AT) == ID


def test_headers_may_be_of_any_case() -> None:
    assert verify(SECRET, {name.title(): value for name, value in VECTOR.items()}, BODY, now=AT)


@pytest.mark.parametrize("secret", ["whsec_", "whsec_!!!!", "whsec_c2hvcnQ=", "\u00e9"])
def test_an_invalid_secret_is_a_value_error_and_no_bad_signature(secret: str) -> None:
    calls: list[Any] = [
        lambda: sign([secret], ID, BODY),
        lambda: verify(secret, VECTOR, BODY, now=AT),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="signing secret") as raised:
            call()
        assert not isinstance(raised.value, InvalidSignature)


def test_secrets_are_long_and_new_each_time() -> None:
    assert len({new_secret() for _ in range(100)}) == 100
    assert all(len(new_secret()) >= 50 for _ in range(3))
