"""How psycopg sends what `binary` makes.

Import it before the first connection is opened: Django's know no more than what was there by then.
"""

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

from pulljobs.binary import Blobs, Integers


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
