"""chancy: asyncio executor, polls again as soon as a slot is free."""

import asyncio
import logging
import sys

import common
from chancy import Chancy, Job, Queue, Worker

CONCURRENCY = 100

logging.disable(logging.INFO)


async def job(*, payload):
    await common.ahandle(payload)


def _chancy():
    return Chancy(common.database_url())


async def migrate():
    async with _chancy() as chancy:
        await chancy.migrate()
        await chancy.declare(
            Queue(
                name="default",
                concurrency=CONCURRENCY,
                executor=Chancy.Executor.Async,
                polling_interval=1,
                eager_polling=True,
            ),
            upsert=True,
        )


def _job(payload):
    return Job(func="chancy_peer.job", kwargs={"payload": payload}, queue="default")


async def publish(payloads):
    async with _chancy() as chancy:
        for payload in payloads:
            await chancy.push(_job(payload))


async def publish_many(batches):
    async with _chancy() as chancy:
        for batch in batches:
            async for _references in chancy.push_many([_job(payload) for payload in batch]):
                pass


def work(processes):
    if processes > 1:
        common.processes(processes, [sys.executable, common.script(), "work", "1"])
    asyncio.run(_worker())


async def _worker():
    async with _chancy() as chancy, Worker(chancy) as worker:
        await worker.wait_for_shutdown()


if __name__ == "__main__":
    common.run(migrate, publish, publish_many, work)
