"""Sender of runs, batches and signals: `python -m benchmarks.workflows.sender LIVE UNTIL SEED`.

It keeps LIVE runs live until the file UNTIL exists. Then the process sends the signals that are
left, until it is killed. It can be killed and started again at any time.
"""

import random
import sys
import time
from pathlib import Path
from typing import Final

import django

MEMBERS: Final = 30
PAUSE: Final = 0.05
THIRDS: Final = 3
UNSIGNALLED: Final = (
    "SELECT job.id, EXISTS (SELECT FROM pulljobs_step WHERE run_id = job.id AND name = 'nap'"
    " AND due_at <= clock_timestamp()) AS has_rested, EXISTS (SELECT FROM pulljobs_run AS run"
    " WHERE run.id = job.id AND waiting_for IS NOT NULL) AS is_waiting"
    " FROM pulljobs_job AS job JOIN pulljobs_consumer AS consumer"
    " ON consumer.id = consumer_id JOIN pulljobs_channel AS channel ON channel.id = channel_id"
    " WHERE channel.name LIKE '%-runs' AND NOT EXISTS"
    " (SELECT FROM pulljobs_signal WHERE run_id = job.id)"
)


def publish_some(live: int) -> None:
    """Publish runs for both handlers, plain and async, and a batch, unless `live` runs are live."""
    from django.db import transaction

    from pulljobs import batches
    from pulljobs.models import Job
    from pulljobs.publishing import publish

    if Job.objects.filter(consumer__channel__name__endswith="-runs").count() >= live:
        return
    with transaction.atomic():
        for _number in range(live // 4):
            publish("plain-runs", {})
            publish("async-runs", {})
        with batches.batch("proof", on_complete=("callbacks", {})) as batch:
            batch.publish_many("members", [{"number": number} for number in range(MEMBERS)])


def send_some(share: float) -> None:
    """Send their signal to a random share of the runs that have none yet.

    A third of the runs can get it at any time, a third after a sleep, a third only when they wait.
    """
    from pulljobs.storage.statements import query
    from pulljobs.workflows import signal

    for row in query("default", UNSIGNALLED):
        is_time = (True, row.has_rested, row.is_waiting)[row.id % THIRDS]
        if is_time and random.random() < share:
            signal(row.id, "go", {"run": row.id}, dedupe_id="go", ignore_missing=True)


def main(live: int, until: Path, seed: str) -> None:
    """Publish and send until the process is killed."""
    from django.db import Error, connection

    random.seed(seed)
    while True:
        is_over = until.exists()
        try:
            if not is_over:
                publish_some(live)
            send_some(1.0 if is_over else 0.2)
        except Error as error:
            print(f"A fault hit the sender: {error}", flush=True)
            connection.close()
        time.sleep(PAUSE)


if __name__ == "__main__":
    django.setup()
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
