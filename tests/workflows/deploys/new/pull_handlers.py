"""Workflow after a deploy: a step has another name."""

import os

from pulljobs.workflows import Run, workflow
from tests.workflows.deploys import CHANNEL, OLDEST


@workflow(
    channel=CHANNEL,
    consumer="fulfilment",
    version=2,
    oldest_version=int(os.environ.get(OLDEST, "1")),
)
def fulfil(run: Run) -> list[object]:
    receipt = run.step("bill", str, "billed")
    run.wait("approval")
    return [run.version, receipt, run.step("send", str, "sent")]
