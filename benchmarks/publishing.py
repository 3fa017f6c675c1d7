"""Messages a second: one by one and many, in Python's words and in one raw statement."""

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Final

import psycopg

from benchmarks.database import CHANNEL, bare_connection, consumer, query
from benchmarks.loops import OURS, text
from benchmarks.report import Table
from pulljobs.engine.encodings import byte_array
from pulljobs.publishing import BATCH, publish, publish_many

ROUNDS: Final = 5
ONES: Final = 4_000
MANY: Final = 20_000
PAYLOAD: Final = {"number": 1, "filler": "x" * 100}
ENCODED: Final = b'{"number": 1, "filler": "%s"}' % (b"x" * 100)


def publishing_rates() -> Table:
    """Medians; everybody in turn on a calm server, each round another one first."""
    ways = deque(_ways(_Raw()).items())
    rates: dict[str, list[float]] = {name: [] for name, _way in ways}
    for _round in range(ROUNDS):
        for name, (count, way) in ways:
            query("CHECKPOINT")
            start = time.perf_counter()
            way()
            rates[name].append(count / (time.perf_counter() - start))
        ways.rotate(-1)
    query("TRUNCATE pulljobs_message, pulljobs_job, raw_hot")
    return [{"way": name, "messages/s": median(some)} for name, some in rates.items()]


def _ways(raw: "_Raw") -> dict[str, tuple[int, Callable[[], None]]]:
    """And how many messages each publishes."""
    ways: dict[str, tuple[int, Callable[[], None]]] = {
        "publish, one by one": (ONES, _one_by_one),
        "publish_many": (MANY, _many),
    }
    for design, where in ("hot", ""), (OURS, ", into our tables"):
        send = partial(raw.publish, design)
        ways |= {
            f"raw, one by one{where}": (ONES, partial(send, ONES, 1, byte_array)),
            f"raw, {BATCH} a batch{where}": (MANY, partial(send, MANY, BATCH, list)),
            f"raw, sent as publish_many does{where}": (
                MANY,
                partial(send, MANY, BATCH, byte_array),
            ),
        }
    to_all = partial(raw.publish, OURS, ONES, 1, byte_array, name="publish_to_all")
    ways["raw, one by one, to whoever consumes"] = (ONES, to_all)
    return ways


def _one_by_one() -> None:
    for _ in range(ONES):
        publish(CHANNEL, PAYLOAD)


def _many() -> None:
    publish_many(CHANNEL, [PAYLOAD] * MANY)


class _Raw:
    def __init__(self) -> None:
        self._cursor = psycopg.Cursor(bare_connection())
        subscribed = consumer()
        self._ids = {"channel_id": subscribed.channel_id, "consumer_id": subscribed.pk}

    def publish(
        self,
        design: str,
        count: int,
        batch: int,
        sent: Callable[[list[bytes]], object],
        name: str = "publish",
    ) -> None:
        for _ in range(count // batch):
            params = {"payloads": sent([ENCODED] * batch), **self._ids}
            self._cursor.execute(text(design, name), params, binary=True)
