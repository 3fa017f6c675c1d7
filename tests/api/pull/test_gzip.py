"""Bodies of part B in gzip, and those that only say so."""

import gzip
import json
from typing import Any

import pytest

from pulljobs.conf import settings
from pulljobs.models import Message
from tests.api.broadcasting import Announcer
from tests.api.caller import Subscription, publish
from tests.api.pull.serving import Puller, in_flight

PULL = json.dumps({"Batch": 1}).encode()
PACKED = gzip.compress(PULL)


def pulled(puller: Puller, body: bytes, coding: str = "gzip") -> tuple[int, Any]:
    url = f"{puller.base}{puller.path}/pull"
    headers = puller.tokens | {"Content-Encoding": coding}
    answer = puller._client.post(url, content=body, headers=headers)
    return answer.status_code, answer.json()


def test_a_body_may_be_compressed(puller: Puller) -> None:
    publish()
    status, told = pulled(puller, PACKED)
    assert (status, len(told["Result"])) == (200, 1)


def test_all_members_are_read(puller: Puller) -> None:
    """As `cat` puts them together."""
    publish()
    publish()
    status, told = pulled(puller, gzip.compress(b'{"Batch"') + gzip.compress(b": 2}"))
    assert (status, len(told["Result"])) == (200, 2)


@pytest.mark.parametrize(
    ("body", "coding", "status"),
    [
        (PULL, "gzip", 400),
        (PACKED[:-9], "gzip", 400),
        (PACKED + b"x", "gzip", 400),
        (PACKED + PACKED[:-9], "gzip", 400),
        (PACKED + gzip.compress(b"") * 200, "gzip", 400),
        (PACKED + gzip.compress(b" " * 20_000), "gzip", 413),
        (PACKED, "br", 400),
        (PACKED, "identity", 400),
        (gzip.compress(b" " * 10_000_000, 1)[:16_000], "gzip", 413),
        (b"x" * 100_000, "gzip", 413),
    ],
    ids=[
        "plain",
        "cut short",
        "more behind it",
        "second cut short",
        "many members",
        "large together",
        "unknown",
        "not said",
        "bomb",
        "large",
    ],
)
def test_what_can_t_be_unpacked_takes_nothing(
    puller: Puller, body: bytes, coding: str, status: int
) -> None:
    """However large it would be: no more of it is unpacked than may be sent plain."""
    publish()
    assert pulled(puller, body, coding)[0] == status
    assert in_flight() == 0


def test_a_batch_of_messages_may_be_compressed(census: Subscription) -> None:
    announcer = Announcer(census.channel, census.channel_token)
    announcer.url += "-batch"
    announcer.headers["Content-Encoding"] = "gzip"
    lines = b'{"Payload": "one"}\n{"Payload": "two"}'
    answer = announcer.post(gzip.compress(lines))
    assert [one["Status"] for one in answer.json()["Results"]] == ["accepted", "accepted"]
    bomb = announcer.post(gzip.compress(b" " * (settings().MAX_BATCH_BYTES + 1)))
    assert (bomb.status_code, Message.objects.count()) == (413, 2)
