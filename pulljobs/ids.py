"""Ids: 64-bit numbers in the order of time, made in the database, and their public form (xid).

The upper 41 bits are milliseconds since 2020-01-01 UTC, the lower 22 come from a sequence. The
public form is what clients of the broker protocol decode: 20 characters of base32hex, in lower
case, for twelve bytes: four of Unix seconds and the eight of the id. Ids sort by time only roughly
(within a millisecond and across a step of the clock they may not): nothing relies on more.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

EPOCH: Final = datetime(2020, 1, 1, tzinfo=UTC)
SEQUENCE_BITS: Final = 22
LARGEST_ID: Final = 2**63 - 1
_EPOCH_SECONDS: Final = int(EPOCH.timestamp())
EPOCH_MILLISECONDS: Final = 1_000 * _EPOCH_SECONDS
"""Unix time of `EPOCH` in milliseconds, which SQL subtracts to make an id."""
_XID_LENGTH: Final = 20
_SPARE_BITS: Final = 4
"""Unused bits of the last character of a public form, which are zero."""
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuv"
_PAIRS: Final = [first + second for first in _DIGITS for second in _DIGITS]
"""Two characters for each ten bits. Python's own functions for base32hex take much longer."""


def time_of(number: int) -> datetime:
    """Return when the id was made, to the millisecond."""
    return EPOCH + timedelta(milliseconds=number >> SEQUENCE_BITS)


def first_of(moment: datetime) -> int:
    """Return the lowest id that can be made at that aware time, as a bound for ranges of ids."""
    return ((moment - EPOCH) // timedelta(milliseconds=1)) << SEQUENCE_BITS


def encode(number: int) -> str:
    """Return the public form of an id."""
    # Two halves of 50 bits, because larger integers take longer.
    first, last = _unix_seconds(number) << 18 | number >> 46, (number & 2**46 - 1) << _SPARE_BITS
    return _first_half(first) + _half(last)


def _half(bits: int) -> str:
    """Return the ten characters of half of a public form from its 50 bits."""
    # Five look-ups in a row take half the time of a loop.
    return (
        f"{_PAIRS[bits >> 40]}{_PAIRS[bits >> 30 & 1023]}{_PAIRS[bits >> 20 & 1023]}"
        f"{_PAIRS[bits >> 10 & 1023]}{_PAIRS[bits & 1023]}"
    )


_first_half: Final = lru_cache(1_000)(_half)
"""`_half` with a cache: ids of one second mostly share the first half of their public form."""


def decode(text: str) -> int:
    """Return the id of a public form. Raise ValueError for a text that `encode` never returns."""
    if len(text) != _XID_LENGTH or not text.isascii() or text != text.lower():
        raise ValueError(f"{text!r} is not an id: an id has {_XID_LENGTH} characters of 0-9 a-v.")
    try:
        bits = int(text, 32)
    except ValueError as error:
        raise ValueError(f"{text!r} is not an id: its characters are 0-9 and a-v.") from error
    number = bits >> _SPARE_BITS & 2**64 - 1
    # `int` reads signs, spaces and underscores, too. To encode the number again takes longer.
    is_whole = text.isalnum() and bits == (_unix_seconds(number) << 64 | number) << _SPARE_BITS
    if number > LARGEST_ID or not is_whole:
        raise ValueError(f"{text!r} is not an id that this database made.")
    return number


def number_of(text: str) -> int:
    """Return the id of a public form, or of the decimal number that logs show.

    Raise ValueError for any other text.
    """
    is_number = text.isascii() and text.isdecimal() and len(text) < _XID_LENGTH
    return int(text) if is_number and int(text) <= LARGEST_ID else decode(text)


def find_number(id: object) -> int | None:
    """Return an id, given as a number, decimal text or public form, as a number, else None."""
    if isinstance(id, int):
        return id if 0 < id <= LARGEST_ID and not isinstance(id, bool) else None
    try:
        return number_of(id) if isinstance(id, str) else None
    except ValueError:
        return None


def numbers_of(given: Iterable[int | str]) -> list[int]:
    """Return the numbers of ids, sorted, each once. Raise ValueError if one of them is no id.

    A single id is refused: text would be read as an id for each of its characters.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ValueError(f"{given!r} is no list of ids: put it into a list.")
    numbers = {number_of(id) if isinstance(id, str) else id for id in given}
    for number in numbers:
        if type(number) is not int or abs(number) > LARGEST_ID:
            raise ValueError(f"{number!r} is not an id: give its number, or its public form.")
    return sorted(numbers)


def _unix_seconds(number: int) -> int:
    return _EPOCH_SECONDS + (number >> SEQUENCE_BITS) // 1000
