"""Values survive a round trip in binary form."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from django.db import connections

from pulljobs.engine import encodings
from tests.factories import USING

pytestmark = pytest.mark.django_db


def answer(text: str, parameter: object) -> Any:
    """Return the value that PostgreSQL answers to a query with one parameter."""
    connections[USING].ensure_connection()
    cursor = psycopg.RawCursor(connections[USING].connection)
    [row] = cursor.execute(text, [parameter]).fetchall()
    return row[0]


@pytest.mark.parametrize("numbers", [[], [0], [-1, 2**63 - 1, -(2**63)], range(3_000)])
def test_numbers(numbers: Sequence[int]) -> None:
    array = encodings.integer_array(numbers)
    assert answer("SELECT $1", array) == answer("SELECT $1::bigint[]", array) == [*numbers]


@pytest.mark.parametrize("blobs", [[], [b""], [b"{}", b"\x00\\,\"'", bytes(70_000)]])
def test_blobs(blobs: Sequence[bytes]) -> None:
    array = encodings.byte_array(blobs)
    assert answer("SELECT $1", array) == answer("SELECT $1::bytea[]", array) == [*blobs]


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2000, 1, 1, tzinfo=UTC),
        datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        datetime(2262, 4, 11, 23, 47, 16, 854_775, tzinfo=UTC),
    ],
)
def test_moments(moment: datetime) -> None:
    sent = answer("SELECT timestamptz_send($1::timestamptz)", moment)
    assert sent == encodings.encode_timestamp(moment)
    assert encodings.decode_timestamp(sent) == moment
