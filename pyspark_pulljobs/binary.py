"""Rows and arrays in the binary form of COPY: to make them, and to read them, takes the least time.

Text of a row is in the encoding of the session, which `connecting` makes UTF-8.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import Any, Final

from pulljobs.engine.encodings import HEAD, MICROSECOND, encode_timestamp, framed

BEGINNING: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
END: Final = b"\xff\xff"

NULL: Final = b"\xff\xff\xff\xff"
_NONE: Final = bytes(4)
"""Of an array without elements: the number of its dimensions."""
_SHORT: Final = Struct("!h")
_INT: Final = Struct("!i")
_LONG: Final = Struct("!q")
_INTERVAL: Final = Struct("!qii")

_ENCODERS: Final[Mapping[str, tuple[int, Callable[[Any], bytes]]]] = {
    "bytea": (17, bytes),
    "text": (25, str.encode),
    "jsonb": (3802, lambda text: b"\x01" + text.encode()),
    "smallint": (21, _SHORT.pack),
    "int": (23, _INT.pack),
    "bigint": (20, _LONG.pack),
    "uuid": (2950, lambda uuid: uuid.bytes),
    "interval": (1186, lambda delta: _INTERVAL.pack(delta // MICROSECOND, 0, 0)),
    "timestamptz": (1184, encode_timestamp),
}
"""By the name of a type: its number, and how its values are told."""


def value(kind: str, value: Any) -> bytes:
    """With its length before it; None: NULL."""
    return NULL if value is None else _framed(_ENCODERS[kind][1](value))


def array(kind: str, values: Sequence[Any]) -> bytes:
    """With its length before it; what holds nothing but None is an array without elements."""
    number, encoded = _ENCODERS[kind]
    different = set(values)
    if different <= {None}:
        return _framed(_NONE + _INT.pack(0) + _INT.pack(number))
    head = HEAD.pack(1, None in different, number, len(values), 1)
    if None in different or len(different) <= len(values) // 2:
        # Content types, headers and priorities repeat.
        once = {one: NULL if one is None else _framed(encoded(one)) for one in different}
        return _framed(head + b"".join([once[one] for one in values]))
    return _framed(head + framed(list(map(encoded, values))))


def row(fields: Iterable[bytes]) -> bytes:
    """Of values and arrays."""
    fields = list(fields)
    return _SHORT.pack(len(fields)) + b"".join(fields)


def _framed(text: bytes) -> bytes:
    return _INT.pack(len(text)) + text
