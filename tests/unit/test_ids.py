from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulljobs import ids

NUMBERS = st.integers(0, 2**63 - 1)
MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2089, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001  hypothesis adds it


@given(NUMBERS)
def test_the_public_form_stands_for_one_id(number: int) -> None:
    text = ids.encode(number)
    assert ids.decode(text) == number
    assert len(text) == 20
    assert set(text) <= set("0123456789abcdefghijklmnopqrstuv")


@given(NUMBERS)
def test_the_public_form_is_an_xid_that_starts_with_the_second(number: int) -> None:
    second = int(ids.time_of(number).timestamp())
    decoded = int(ids.encode(number)[:7], 32) >> 3
    assert decoded == second & 0xFFFFFFFF


@given(MOMENTS)
def test_the_first_id_of_a_time_contains_that_time(moment: datetime) -> None:
    start = ids.time_of(ids.first_of(moment))
    assert timedelta(0) <= moment - start < timedelta(milliseconds=1)


@given(MOMENTS, MOMENTS)
def test_ids_sort_by_time(first: datetime, second: datetime) -> None:
    if ids.time_of(ids.first_of(first)) < ids.time_of(ids.first_of(second)):
        assert ids.encode(ids.first_of(first)) < ids.encode(ids.first_of(second))


@given(NUMBERS, st.integers(0, 19), st.characters(codec="utf-8"))
def test_a_changed_character_is_refused_or_another_id(number: int, place: int, letter: str) -> None:
    text = ids.encode(number)
    changed = text[:place] + letter + text[place + 1 :]
    try:
        decoded = ids.decode(changed)
    except ValueError:
        return
    assert ids.encode(decoded) == changed


@given(st.text())
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an id"):
        ids.decode(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ids.encode(1)[:-1],
        ids.encode(1) + "0",
        ids.encode(2**62).upper(),
        f" {ids.encode(1)[1:]}",
        "w" * 20,
        "v" * 20,
        "0" * 20,
        "٠" * 20,
        ids.encode(1)[:-1] + "1",
    ],
)
def test_text_that_encode_never_returns_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an id"):
        ids.decode(text)
