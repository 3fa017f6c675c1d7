"""Bodies of the lease protocol in gzip, and those that only claim to be."""

import gzip
import json
from itertools import pairwise
from secrets import token_hex
from typing import Any

import pytest

from pulljobs.conf import settings
from pulljobs.models import Message
from tests.api.broadcasting import Announcer
from tests.api.caller import Subscription, publish
from tests.api.leases.serving import Puller, in_flight, outcome_of

PULL = json.dumps({"Batch": 1}).encode()
PACKED = gzip.compress(PULL)


def pulled(puller: Puller, body: bytes, coding: str = "gzip") -> tuple[int, Any]:
    url = f"{puller.base}{puller.path}/pull"
    headers = puller.tokens | {"Content-Encoding": coding}
    answer = puller._client.post(url, content=body, headers=headers)
    return answer.status_code, answer.json()


def test_a_body_may_be_compressed(puller: Puller) -> None:
    publish()
    status, body = pulled(puller, PACKED)
    assert (status, len(body["Result"])) == (200, 1)


def test_all_members_are_read(puller: Puller) -> None:
    """A body of two gzip members, as `cat` joins files, is read as one."""
    publish()
    publish()
    status, body = pulled(puller, gzip.compress(b'{"Batch"') + gzip.compress(b": 2}"))
    assert (status, len(body["Result"])) == (200, 2)


def test_members_are_of_any_length(puller: Puller) -> None:
    """Members of a gzip body may be shorter or longer than a chunk of decompression."""
    publish()
    [job] = puller.taken()
    outcome = outcome_of(job, "DELIVERED", Error=token_hex(200_000))
    body = json.dumps({"Results": [outcome]}).encode()
    cuts = [0, 1, 30_000, 30_001, 200_000, len(body)]
    packed = b"".join(gzip.compress(body[a:b]) for a, b in pairwise(cuts))
    puller.tokens["Content-Encoding"] = "gzip"
    assert puller.post("ack", packed).json()["Results"][0]["Status"] == "ok"


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
    """The pull is refused, and no more is unpacked than an uncompressed body may have."""
    publish()
    assert pulled(puller, body, coding)[0] == status
    assert in_flight() == 0


@pytest.mark.parametrize("verb", ["pull", "ack", "renew"])
def test_nothing_is_unpacked_for_strangers(puller: Puller, verb: str) -> None:
    """With a wrong token a body is not unpacked: 403, or 413 if it is above the limit as sent."""
    puller.tokens |= {"Content-Encoding": "gzip", "X-Broker-Consumer-Token": "guessed"}
    assert puller.post(verb, b"no gzip").status_code == 403
    assert puller.post(verb, b"x" * 3_000_000).status_code == 413


def test_a_batch_of_messages_may_be_compressed(census: Subscription) -> None:
    announcer = Announcer(census.channel, census.channel_token)
    announcer.url += "-batch"
    announcer.headers["Content-Encoding"] = "gzip"
    lines = b'{"Payload": "one"}\n{"Payload": "two"}'
    answer = announcer.post(gzip.compress(lines))
    assert [result["Status"] for result in answer.json()["Results"]] == ["accepted", "accepted"]
    bomb = announcer.post(gzip.compress(b" " * (settings().MAX_BATCH_BYTES + 1)))
    assert (bomb.status_code, Message.objects.count()) == (413, 2)
