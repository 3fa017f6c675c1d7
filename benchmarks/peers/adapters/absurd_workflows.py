"""absurd: one connection a process, which a step shares with its effect: both commit at once."""

import asyncio
import functools
import subprocess
import sys
from pathlib import Path

import common
import psycopg
import workflow_common as shared
from absurd_sdk import Absurd

QUEUE = "runs"
POLL_SECONDS = 0.005
SPAWN = (
    "SELECT absurd.spawn_task(%s, %s, jsonb_build_object('run', run), '{}')"
    " FROM generate_series(0, %s - 1) AS run"
)
SLEEP = (
    "UPDATE absurd.r_runs SET state = 'sleeping',"
    " available_at = clock_timestamp() + interval '1 day'"
)


@functools.cache
def _app():
    connection = psycopg.connect(autocommit=True)
    app = Absurd(connection, queue_name=QUEUE)

    @app.register_task("steps")
    def steps(params, ctx):
        for number in range(shared.STEPS):
            with connection.transaction():
                step = ctx.begin_step("effect")
                if not step.done:
                    connection.execute(shared.INSERT, [ctx.task_id, number])
                    ctx.complete_step(step, number)

    @app.register_task("start")
    def start(params, ctx):
        shared.note("resumed", params["run"])

    @app.register_task("signal")
    def signal(params, ctx):
        shared.note("waiting", params["run"])
        ctx.await_event(f"go-{params['run']}")
        shared.note("resumed", params["run"])

    return app


def migrate():
    command = [str(Path(sys.executable).with_name("absurdctl")), "init"]
    subprocess.run(command, check=True, capture_output=True)
    _app().create_queue(QUEUE)


def start(kind, run):
    _app().spawn(kind, {"run": run})


def start_many(kind, runs):
    with psycopg.connect() as connection:
        connection.execute(SPAWN, [QUEUE, kind, runs])
        if kind == "sleeps":  # A worker would take an hour to put a million of them to sleep.
            connection.execute("UPDATE absurd.t_runs SET state = 'sleeping'")
            connection.execute(SLEEP)


def send(run):
    _app().emit_event(f"go-{run}", {})


def work(processes):
    if processes > 1:
        common.processes(processes, [sys.executable, common.script(), "work", "1"])
    _app().start_worker(poll_interval=POLL_SECONDS, batch_size=1)


if __name__ == "__main__":
    asyncio.run(shared.run(migrate, start, start_many, send, work))
