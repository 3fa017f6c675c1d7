from datetime import timedelta

import workflow_common as shared
from django.db import connection

from pulljobs.handlers import ClaimedJob, handler
from pulljobs.workflows import Run, workflow


@handler(channel="members", consumer="peer")
def handle_member(job: ClaimedJob) -> None:
    """Return at once, which delivers the member."""


@workflow(channel="runs", consumer="peer")
def measured(run: Run) -> None:
    KINDS[run.input["kind"]](run)


def steps(run: Run) -> None:
    for number in range(shared.STEPS):
        with run.atomic("effect") as step:
            if step.pending:
                with connection.cursor() as cursor:
                    cursor.execute(shared.INSERT, [run.id, number])
                step.result = number


def start(run: Run) -> None:
    shared.note("resumed", run.input["run"])


def signal(run: Run) -> None:
    shared.note("waiting", run.input["run"])
    run.wait("go")
    shared.note("resumed", run.input["run"])


def sleeps(run: Run) -> None:
    run.sleep("nap", timedelta(days=1))


KINDS = {"steps": steps, "start": start, "signal": signal, "sleeps": sleeps}
