"""How psycopg sends what `binary` makes, and which of its errors blame a value.

Import it before the first connection is opened: Django's know no more than what was there by then.
"""

from typing import Final

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

from pulljobs.engine.encodings import Blobs, Integers

TOO_MUCH: Final = psycopg.errors.StatementTooComplex, psycopg.errors.ProgramLimitExceeded
"""What the server says of a value: such as of JSON that is nested too deep for its stack."""


class _AsItIs(Dumper):
    format = Format.BINARY

    def dump(self, obj: bytes) -> bytes:
        return obj


class _IntegersDumper(_AsItIs):
    oid = psycopg.adapters.types["int8"].array_oid


class _BlobsDumper(_AsItIs):
    oid = psycopg.adapters.types["bytea"].array_oid


psycopg.adapters.register_dumper(Integers, _IntegersDumper)
psycopg.adapters.register_dumper(Blobs, _BlobsDumper)
