"""faststream-outbox: LISTEN, leases by token, deletes in batches, its autovacuum settings."""

import asyncio
import logging
import sys

import common
from faststream import FastStream
from faststream_outbox import OutboxBroker, make_outbox_table, outbox_autovacuum_ddl
from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import create_async_engine

QUEUE = "jobs"
FETCH = 500
WORKERS = 4
FLUSH = 100

metadata = MetaData()
table = make_outbox_table(metadata)
# Its workers keep a connection each, and so does the fetch loop.
engine = create_async_engine(common.database_url("postgresql+asyncpg"), pool_size=WORKERS + 4)
broker = OutboxBroker(engine, outbox_table=table, log_level=logging.DEBUG)


@broker.subscriber(
    QUEUE,
    max_workers=WORKERS,
    fetch_batch_size=FETCH,
    terminal_flush_batch_size=FLUSH,
    min_fetch_interval=0.05,
)
async def job(payload: dict):
    await common.ahandle(payload)


async def migrate():
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
        await connection.execute(text(outbox_autovacuum_ddl("outbox")))


async def publish(payloads):
    await broker.connect()
    for payload in payloads:
        async with engine.begin() as connection:
            await broker.publish(payload, queue=QUEUE, session=connection)


async def publish_many(batches):
    await broker.connect()
    for batch in batches:
        async with engine.begin() as connection:
            await broker.publish_batch(*batch, queue=QUEUE, session=connection)


def work(processes):
    if processes > 1:
        common.processes(processes, [sys.executable, common.script(), "work", "1"])
    asyncio.run(FastStream(broker).run(log_level=logging.WARNING))


if __name__ == "__main__":
    common.run(migrate, publish, publish_many, work)
