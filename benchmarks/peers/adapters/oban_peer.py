"""oban: one asyncio worker a process on uvloop, as its command runs it, and its batched inserts."""

import asyncio
import sys

import common
import uvloop
from oban import Oban, worker
from oban.schema import install
from psycopg_pool import AsyncConnectionPool

LIMIT = 100
POOL = 10


@worker(queue="jobs")
class Job:
    async def process(self, job):
        await common.ahandle(job.args)


def _pool(size):
    return AsyncConnectionPool(common.database_url(), min_size=size, max_size=size, open=False)


async def migrate():
    async with _pool(1) as pool:
        await install(pool)


async def publish(payloads):
    async with _pool(1) as pool:
        oban = Oban(pool=pool)
        for payload in payloads:
            await oban.enqueue(Job.new(payload))


async def publish_many(batches):
    async with _pool(1) as pool:
        oban = Oban(pool=pool)
        for batch in batches:
            await oban.enqueue_many([Job.new(payload) for payload in batch])


def work(processes):
    if processes > 1:
        common.processes(processes, [sys.executable, common.script(), "work", "1"])
    uvloop.run(_work())


async def _work():
    async with _pool(POOL) as pool, Oban(pool=pool, queues={"jobs": LIMIT}):
        await asyncio.Event().wait()


if __name__ == "__main__":
    common.run(migrate, publish, publish_many, work)
