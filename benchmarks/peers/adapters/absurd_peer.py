"""absurd: asyncio workers with one connection each. Tasks without steps, spawned one by one."""

import subprocess
import sys
from pathlib import Path

import common
from absurd_sdk import AsyncAbsurd

QUEUE = "jobs"
CONCURRENCY = 100
POLL_SECONDS = 0.02


def _app():
    return AsyncAbsurd(common.database_url(), queue_name=QUEUE)


async def migrate():
    command = [str(Path(sys.executable).with_name("absurdctl")), "init"]
    subprocess.run(command, check=True, capture_output=True)
    await _app().create_queue(QUEUE)


async def publish(payloads):
    app = _app()
    for payload in payloads:
        await app.spawn("job", payload, queue=QUEUE)


async def work(processes):
    if processes > 1:
        common.processes(processes, [sys.executable, common.script(), "work", "1"])
    app = _app()

    @app.register_task("job")
    async def job(params, ctx):
        await common.ahandle(params)

    await app.start_worker(concurrency=CONCURRENCY, poll_interval=POLL_SECONDS)


if __name__ == "__main__":
    common.run(migrate, publish, None, work)
