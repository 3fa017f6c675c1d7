"""Adapters by which psycopg sends the binary arrays of `encodings`.

Import this before the first connection is opened: a connection copies the adapters when it opens.
"""

from typing import Final

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

from pulljobs.engine.encodings import Blobs, Floats, Integers

TOO_MUCH: Final = psycopg.errors.StatementTooComplex, psycopg.errors.ProgramLimitExceeded
"""Errors by which the server refuses a value, such as JSON that is nested too deep for it."""


class _AsItIs(Dumper):
    format = Format.BINARY

    def dump(self, obj: bytes) -> bytes:
        return obj


class _IntegersDumper(_AsItIs):
    oid = psycopg.adapters.types["int8"].array_oid


class _FloatsDumper(_AsItIs):
    oid = psycopg.adapters.types["float8"].array_oid


class _BlobsDumper(_AsItIs):
    oid = psycopg.adapters.types["bytea"].array_oid


psycopg.adapters.register_dumper(Integers, _IntegersDumper)
psycopg.adapters.register_dumper(Floats, _FloatsDumper)
psycopg.adapters.register_dumper(Blobs, _BlobsDumper)
