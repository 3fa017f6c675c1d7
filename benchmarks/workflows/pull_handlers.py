"""Workflows and members of batches whose effects `workflow-faults` judges."""

from datetime import timedelta
from typing import Any, Final

from django.db import connection

from benchmarks.workflows.recording import BOOKED, PARTS, StepCall, record_call
from pulljobs.errors import Discard
from pulljobs.handlers import ClaimedJob, handler
from pulljobs.workflows import AsyncRun, Run, workflow

NAP: Final = timedelta(seconds=1.1)
"""Shortest sleep, rounded up, that gives the lease back."""
UNLUCKY: Final = 7
"""One member in seven is dead at once."""
INSERT: Final = "INSERT INTO proof_effect (run_id, part) VALUES (%s, %s)"


@workflow(channel="plain-runs", consumer="proof")
def prove(run: Run) -> dict[str, Any]:
    """Call a function, write effects, sleep and wait for a signal."""
    first = run.step("call", call, run, "call")
    parts = []
    for part in range(PARTS):
        with run.atomic("write") as step:
            if step.pending:
                write_effect(run.job.id, part)
                step.result = part
        parts.append(step.result)
    run.sleep("nap", NAP)
    signal = run.wait("go")
    second = run.step("call", call, run, "call again")
    with run.atomic("book") as step:
        if step.pending:
            write_effect(run.job.id, BOOKED)
            step.result = BOOKED
    return {"calls": [first, second], "parts": [*parts, step.result], "signal": signal}


@workflow(channel="async-runs", consumer="proof")
async def aprove(run: AsyncRun) -> dict[str, Any]:
    """Do what `prove` does, on the event loop."""
    first = await run.step("call", call, run, "call")
    parts = [await run.atomic("write", write_effect, run.job.id, part) for part in range(PARTS)]
    await run.sleep("nap", NAP)
    signal = await run.wait("go")
    second = await run.step("call", call, run, "call again")
    parts.append(await run.atomic("book", write_effect, run.job.id, BOOKED))
    return {"calls": [first, second], "parts": parts, "signal": signal}


@handler(channel="members", consumer="proof")
def handle_member(job: ClaimedJob) -> None:
    """Deliver the member, or reject it if its number is a multiple of seven."""
    if job.json()["number"] % UNLUCKY == 0:
        raise Discard("This member is dead.")


def call(run: Run | AsyncRun, name: str) -> str:
    """Record a call of the named step in a file, and return the lease token of the run's claim."""
    lease_token = str(run.job.held.lease_token)
    record_call(StepCall(run.job.id, name, lease_token))
    return lease_token


def write_effect(run_id: int, part: int) -> int:
    """Write an effect in the transaction of its step."""
    with connection.cursor() as cursor:
        cursor.execute(INSERT, [run_id, part])
    return part
