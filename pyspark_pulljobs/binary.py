"""Encoder of rows and arrays in COPY's binary form, the fastest form to write and to read.

Text is in the encoding of the session, which `connecting` sets to UTF-8. The argument `kind` is the
name of a type in PostgreSQL.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import Any, Final

from pulljobs.engine.encodings import HEAD, MICROSECOND, encode_timestamp, framed

BEGINNING: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
"""Header of the data of a COPY."""
END: Final = b"\xff\xff"
"""Trailer of the data of a COPY."""

NULL: Final = b"\xff\xff\xff\xff"
_NONE: Final = bytes(4)
"""Number of dimensions of an array without elements."""
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
"""OID and encoder of each type, by its name."""


def encode_value(kind: str, value: Any) -> bytes:
    """Return the value with its length in front. None becomes NULL."""
    return NULL if value is None else _framed(_ENCODERS[kind][1](value))


def encode_array(kind: str, values: Sequence[Any]) -> bytes:
    """Return the array with its length in front. If all values are None, it has no elements."""
    number, encoded = _ENCODERS[kind]
    distinct = set(values)
    if distinct <= {None}:
        return _framed(_NONE + _INT.pack(0) + _INT.pack(number))
    head = HEAD.pack(1, None in distinct, number, len(values), 1)
    if None in distinct or len(distinct) <= len(values) // 2:
        # Content types, headers and priorities repeat: encode each distinct value once.
        once = {item: NULL if item is None else _framed(encoded(item)) for item in distinct}
        return _framed(head + b"".join([once[item] for item in values]))
    return _framed(head + framed(list(map(encoded, values))))


def encode_row(fields: Iterable[bytes]) -> bytes:
    """Return a row of encoded values and arrays, with their number in front."""
    fields = list(fields)
    return _SHORT.pack(len(fields)) + b"".join(fields)


def _framed(text: bytes) -> bytes:
    return _INT.pack(len(text)) + text
