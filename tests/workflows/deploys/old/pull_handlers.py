"""Workflow before a deploy."""

from pulljobs.workflows import Run, workflow
from tests.workflows.deploys import CHANNEL


@workflow(channel=CHANNEL, consumer="fulfilment", version=1)
def fulfil(run: Run) -> list[object]:
    receipt = run.step("charge", str, "charged")
    run.wait("approval")
    return [run.version, receipt, run.step("send", str, "sent")]
