"""pulljobs: workflows in eight threads a process."""

import asyncio
import os
import sys

import django
import workflow_common as shared

FLAGS = ("--concurrency", "8", "--verbosity", "0")
BATCH = 10_000
PUT_TO_SLEEP = """
WITH sleeping AS (
    INSERT INTO pulljobs_message
        (channel_id, published_at, priority, content_type, headers, payload)
    SELECT id, clock_timestamp(), 0, 'application/json', '{}', '{"kind": "sleeps"}'
    FROM pulljobs_channel, generate_series(1, %s)
    WHERE name = 'runs'
    RETURNING id, channel_id
),
job AS (
    INSERT INTO pulljobs_job
        (id, message_id, consumer_id, available_at, priority, state, retry_count, deliveries)
    SELECT
        sleeping.id, sleeping.id, consumer.id, clock_timestamp() + interval '1 day', 0, 'QUEUED',
        0, 0
    FROM sleeping JOIN pulljobs_consumer AS consumer USING (channel_id)
    RETURNING id, available_at
),
run AS (
    INSERT INTO pulljobs_run (id, workflow, version)
    SELECT id, 'measured', 1 FROM job
)
INSERT INTO pulljobs_step
    (run_id, name, number, position, kind, function, started_at, due_at)
SELECT id, 'nap', 1, 1, 'sleep', '', clock_timestamp(), available_at FROM job
"""

os.environ["DJANGO_SETTINGS_MODULE"] = "workflow_settings"
django.setup()
_run_ids = {}


def migrate():
    from django.core.management import call_command

    from pulljobs import handlers
    from pulljobs.models import Channel

    call_command("migrate", verbosity=0)
    handlers.autodiscover()
    handlers.sync_consumers()
    Channel.objects.get_or_create(name="callbacks")


def start(kind, run):
    from pulljobs.publishing import publish

    [_run_ids[run]] = publish("runs", {"kind": kind, "run": run}).job_ids


def start_many(kind, runs):
    from django.db import connection

    from pulljobs.publishing import publish_many

    if kind == "batch":
        fill_batch(runs)
        return
    if kind != "sleeps":
        publish_many("runs", [{"kind": kind, "run": run} for run in range(runs)])
        return
    with connection.cursor() as cursor:
        for first in range(0, runs, BATCH):
            cursor.execute(PUT_TO_SLEEP, [min(BATCH, runs - first)])


def fill_batch(members):
    from django.db import transaction

    from pulljobs import batches

    with (
        transaction.atomic(),
        batches.batch("large", on_complete=("callbacks", {})) as batch,
    ):
        batch.publish_many("members", ({"number": number} for number in range(members)))


def send(run):
    from pulljobs.workflows import signal

    signal(_run_ids[run], "go", {})


def work(processes):
    command = [sys.executable, "-m", "django", "runpullworker", "--processes", str(processes)]
    os.execvp(command[0], [*command, *FLAGS])


if __name__ == "__main__":
    asyncio.run(shared.run(migrate, start, start_many, send, work))
