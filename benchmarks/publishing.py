"""Messages a second, one by one and many, by the Python API and by raw statements."""

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Final

import psycopg

from benchmarks.database import CHANNEL, bare_connection, consumer, query
from benchmarks.loops import OURS, read_statement
from benchmarks.report import Table
from pulljobs.engine.encodings import byte_array
from pulljobs.publishing import BATCH, publish, publish_many

MANY: Final = 5
"""Messages published in batches for every message published one by one."""
PAYLOAD: Final = {"number": 1, "filler": "x" * 100}
ENCODED: Final = b'{"number": 1, "filler": "%s"}' % (b"x" * 100)


def publishing_rates(rounds: int, count: int) -> Table:
    """Return the median messages a second of each way to publish.

    In every round all ways take turns, each after a checkpoint, and each round begins with another
    way. `count` messages are published one by one and about five times as many in batches.
    """
    batches = max(1, round(MANY * count / BATCH))
    ways = deque(_ways(_Raw(), count, batches * BATCH).items())
    rates: dict[str, list[float]] = {name: [] for name, _way in ways}
    for _round in range(rounds):
        for name, (messages, way) in ways:
            query("CHECKPOINT")
            start = time.perf_counter()
            way()
            rates[name].append(messages / (time.perf_counter() - start))
        ways.rotate(-1)
    query("TRUNCATE pulljobs_message, pulljobs_job, raw_hot")
    return [{"way": name, "messages/s": median(values)} for name, values in rates.items()]


def _ways(raw: "_Raw", few: int, many: int) -> dict[str, tuple[int, Callable[[], None]]]:
    """Return for each way how many messages it publishes, and the call that does it."""
    ways: dict[str, tuple[int, Callable[[], None]]] = {
        "publish, one by one": (few, partial(_one_by_one, few)),
        "publish_many": (many, partial(_many, many)),
    }
    for design, where in ("hot", ""), (OURS, ", into our tables"):
        send = partial(raw.publish, design)
        ways |= {
            f"raw, one by one{where}": (few, partial(send, few, 1, byte_array)),
            f"raw, {BATCH} a batch{where}": (many, partial(send, many, BATCH, list)),
            f"raw, sent as publish_many does{where}": (
                many,
                partial(send, many, BATCH, byte_array),
            ),
        }
    to_all = partial(raw.publish, OURS, few, 1, byte_array, name="publish_to_all")
    ways["raw, one by one, to all consumers"] = (few, to_all)
    return ways


def _one_by_one(count: int) -> None:
    for _ in range(count):
        publish(CHANNEL, PAYLOAD)


def _many(count: int) -> None:
    publish_many(CHANNEL, [PAYLOAD] * count)


class _Raw:
    """Raw publishing statements on a bare connection."""

    def __init__(self) -> None:
        self._cursor = psycopg.Cursor(bare_connection())
        noop = consumer()
        self._ids = {"channel_id": noop.channel_id, "consumer_id": noop.pk}

    def publish(
        self,
        design: str,
        count: int,
        batch: int,
        encode: Callable[[list[bytes]], object],
        name: str = "publish",
    ) -> None:
        for _ in range(count // batch):
            params = {"payloads": encode([ENCODED] * batch), **self._ids}
            self._cursor.execute(read_statement(design, name), params, binary=True)
