"""procrastinate: one asyncio worker a process. Jobs are fetched and finished one by one."""

import sys

import common
from procrastinate_app import app, job

CONCURRENCY = 100


async def migrate():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def publish(payloads):
    async with app.open_async():
        for payload in payloads:
            await job.defer_async(**payload)


async def publish_many(batches):
    async with app.open_async():
        for batch in batches:
            await job.batch_defer_async(*batch)


def work(processes):
    command = [sys.executable, "-m", "procrastinate", "--app", "procrastinate_app.app", "worker"]
    common.processes(processes, [*command, "--concurrency", str(CONCURRENCY)])


if __name__ == "__main__":
    common.run(migrate, publish, publish_many, work)
