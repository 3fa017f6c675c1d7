"""pgqueuer: asyncpg and uvloop. It fetches jobs in batches, and buffers the rows of its log."""

import json
import sys

import asyncpg
import common
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

BATCH_SIZE = 500
POOL = 5


async def migrate():
    queries = Queries(AsyncpgDriver(await asyncpg.connect()))
    await queries.install()
    await queries.optimize_autovacuum()  # as `pgq autovac` does


async def publish(payloads):
    queries = Queries(AsyncpgDriver(await asyncpg.connect()))
    for payload in payloads:
        await queries.enqueue("job", json.dumps(payload).encode())


async def publish_many(batches):
    queries = Queries(AsyncpgDriver(await asyncpg.connect()))
    for batch in batches:
        await queries.enqueue(
            ["job"] * len(batch),
            [json.dumps(payload).encode() for payload in batch],
            [0] * len(batch),
        )


def work(processes):
    if processes > 1:
        common.processes(processes, [sys.executable, common.script(), "work", "1"])
    uvloop.run(_worker())


async def _worker():
    queuer = PgQueuer(AsyncpgPoolDriver(await asyncpg.create_pool(min_size=2, max_size=POOL)))

    @queuer.entrypoint("job")
    async def job(job):
        await common.ahandle(json.loads(job.payload))

    await queuer.run(batch_size=BATCH_SIZE)


if __name__ == "__main__":
    common.run(migrate, publish, publish_many, work)
