"""awa: queue storage, publishes by COPY, connections and workers as in its authors' benchmark."""

import asyncio
import subprocess
import sys

import awa
import common

CONNECTIONS = 50
WORKERS = 256
POLL_MS = 50
URL = common.database_url().replace("@/", "@localhost/")  # It refuses an empty host.


def _client():
    return awa.AsyncClient(URL, max_connections=CONNECTIONS)


async def migrate():
    command = [sys.executable, "-m", "awa", "--database-url", URL, "migrate"]
    subprocess.run(command, check=True, capture_output=True)
    await _client().install_queue_storage()


async def publish(payloads):
    client = _client()
    for payload in payloads:
        await client.insert(payload, kind="job", queue="jobs")


async def publish_many(batches):
    client = _client()
    for batch in batches:
        await client.enqueue_many_copy(batch, kind="job", queue="jobs")


async def work(processes):
    if processes > 1:
        common.processes(processes, [sys.executable, common.script(), "work", "1"])
    client = _client()

    @client.task(dict, kind="job", queue="jobs")
    async def handle(job):
        await common.ahandle(job.args)

    await client.start([("jobs", WORKERS)], poll_interval_ms=POLL_MS)
    await asyncio.Event().wait()


if __name__ == "__main__":
    common.run(migrate, publish, publish_many, work)
