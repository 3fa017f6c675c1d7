"""awa: it has no steps, so a run is a chain of jobs that commit an effect with the next job."""

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import awa
import common
import workflow_common as shared

CONCURRENCY = 32
POLL_MS = 20
BATCH = 10_000
INSERT = "INSERT INTO effect (run, step) VALUES ($1, $2)"
URL = common.database_url().replace("@/", "@localhost/")  # It refuses an empty host.


def _client():
    return awa.AsyncClient(URL, max_connections=CONCURRENCY + 8)


async def migrate():
    command = [sys.executable, "-m", "awa", "--database-url", URL, "migrate"]
    subprocess.run(command, check=True, capture_output=True)
    await _client().install_queue_storage()


_sender = None


async def start(kind, run):
    global _sender
    _sender = _sender or _client()
    await _sender.insert({"run": run, "step": 0}, kind=kind, queue="runs")


async def start_many(kind, runs):
    later = {"run_at": (datetime.now(UTC) + timedelta(days=1)).isoformat()}
    options = later if kind == "sleeps" else {}
    client = _client()
    for first in range(0, runs, BATCH):
        jobs = [{"run": run, "step": 0} for run in range(first, min(first + BATCH, runs))]
        await client.enqueue_many_copy(jobs, kind=kind, queue="runs", **options)


async def send(run):
    token = (shared.FOLDER / f"token-{run}").read_text()
    await _sender.resume_external(token, {})


async def work(processes):
    if processes > 1:
        common.processes(processes, [sys.executable, common.script(), "work", "1"])
    client = _client()

    @client.task(dict, kind="steps", queue="runs")
    async def steps(job):
        run, step = job.args["run"], job.args["step"]
        async with await client.transaction() as transaction:
            await transaction.execute(INSERT, str(run), step)
            if step + 1 < shared.STEPS:
                following = {"run": run, "step": step + 1}
                await transaction.insert(following, kind="steps", queue="runs")

    @client.task(dict, kind="start", queue="runs")
    async def start_run(job):
        shared.note("resumed", job.args["run"])

    @client.task(dict, kind="signal", queue="runs")
    async def signal(job):
        run = job.args["run"]
        token = await job.register_callback(timeout_seconds=shared.PATIENCE)
        (shared.FOLDER / f"token-{run}").write_text(token.id)
        shared.note("waiting", run)
        await job.wait_for_callback(token)
        shared.note("resumed", run)

    await client.start([("runs", CONCURRENCY)], poll_interval_ms=POLL_MS)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(shared.run(migrate, start, start_many, send, work))
