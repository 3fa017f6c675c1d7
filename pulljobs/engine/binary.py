"""Values in PostgreSQL's binary form, for what there is one of with every job.

It reads such an array in half the time of its text; and of moments few are asked for. How psycopg
sends them is in `adapters`: a client loads this, and has no psycopg.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import chain, repeat
from struct import Struct
from typing import Final

EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
HEAD: Final = Struct("!iiIii")
"""Of an array: dimensions, whether there are NULLs, type of an element, how many, from which."""
_LENGTH: Final = Struct("!i")
_BIGINT, _BYTEA = 20, 17


class Integers(bytes):
    """A bigint[]."""


class Blobs(bytes):
    """A bytea[]."""


def integer_array(values: Iterable[int]) -> Integers:
    """Of ids: none is NULL."""
    numbers = tuple(values)
    elements = chain.from_iterable(zip(repeat(8), numbers, strict=False))
    return Integers(_integers(len(numbers)).pack(1, 0, _BIGINT, len(numbers), 1, *elements))


def byte_array(values: Sequence[bytes]) -> Blobs:
    """Of payloads: none is NULL."""
    return Blobs(HEAD.pack(1, 0, _BYTEA, len(values), 1) + framed(values))


def framed(values: Sequence[bytes]) -> bytes:
    """Each with its length before it."""
    lengths = map(_LENGTH.pack, map(len, values))
    return b"".join(chain.from_iterable(zip(lengths, values, strict=True)))


def moment(sent: bytes) -> datetime:
    """Of what `timestamptz_send` returns."""
    return EPOCH + int.from_bytes(sent, signed=True) * MICROSECOND


def sent(moment: datetime) -> bytes:
    """The same the other way; aware."""
    return ((moment - EPOCH) // MICROSECOND).to_bytes(8, signed=True)


@lru_cache(maxsize=64)
def _integers(count: int) -> Struct:
    """Each with its length before it; of a large array it takes tens of kilobytes."""
    return Struct(HEAD.format + "iq" * count)
