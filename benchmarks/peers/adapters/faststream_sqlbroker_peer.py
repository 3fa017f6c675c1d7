"""faststream-sqlbroker: fetches and flushes in batches. Finished messages go to its archive."""

import asyncio
import logging
import sys

import common
from faststream import FastStream
from faststream_sqlbroker import SqlBroker
from faststream_sqlbroker.sqlbroker.schema import SqlBrokerSchemaConfig, define_sqlbroker_schema
from sqlalchemy.ext.asyncio import create_async_engine

QUEUE = "jobs"
FETCH = 500
WORKERS = 10

engine = create_async_engine(common.database_url("postgresql+asyncpg"))
broker = SqlBroker(engine=engine, log_level=logging.DEBUG)


@broker.subscriber(
    [QUEUE],
    max_workers=WORKERS,
    fetch_batch_size=FETCH,
    max_fetch_interval=0.1,
    min_fetch_interval=0.01,
    flush_interval=0.05,
)
async def job(payload: dict):
    await common.ahandle(payload)


async def migrate():
    schema = define_sqlbroker_schema(config=SqlBrokerSchemaConfig())
    async with engine.begin() as connection:
        for table in schema.tables.values():
            await connection.run_sync(table.create)


async def publish(payloads):
    await broker.connect()
    for payload in payloads:
        await broker.publish(payload, queue=QUEUE)


async def publish_many(batches):
    await broker.connect()
    for batch in batches:
        await broker.publish_batch(*batch, queue=QUEUE)


def work(processes):
    if processes > 1:
        common.processes(processes, [sys.executable, common.script(), "work", "1"])
    asyncio.run(FastStream(broker).run(log_level=logging.WARNING))


if __name__ == "__main__":
    common.run(migrate, publish, publish_many, work)
