"""A trace continues in a real worker: through its claim, into its handler and its POST."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pulljobs.models import ArchivedJob, Consumer
from tests.api.leases.processes import STARTING_SECONDS
from tests.factories import ConsumerFactory
from tests.metrics.app.apps import FILE
from tests.metrics.tracing import id_of, traced
from tests.sessions import wait_until
from tests.webhooks.conftest import Opened, endpoint
from tests.worker.processes import Stage

__all__ = ["endpoint"]
PULLJOBS = json.dumps({"TRACING": True, "PUSH_ALLOWED_NETWORKS": ["127.0.0.0/8"]})
OURS = {"claim script", "process script", "push script"}


@pytest.mark.processes
def test_the_publisher_s_trace_goes_on_in_the_worker(
    stage: Stage, endpoint: Opened, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    there, file = endpoint(), tmp_path / "spans"
    script = stage.consumer().channel
    ConsumerFactory.create(channel=script, type=Consumer.Type.PUSH, callback_url=there.url)
    with traced(monkeypatch) as ours:
        stage.publish()
    trace_id, span_id = (
        f"0x{number:0{length}x}"
        for number, length in zip(id_of(ours.find("publish script")), (32, 16), strict=True)
    )
    apps = "tests.worker.app tests.metrics.app.apps.Traced"
    stage.worker(WORKER_PULLJOBS=PULLJOBS, WORKER_APPS=apps, **{FILE: str(file)})
    wait_until(lambda: ArchivedJob.objects.count() == 2, STARTING_SECONDS)
    wait_until(lambda: {span["name"] for span in spans(file)} == OURS)
    for span in spans(file):
        assert (span["context"]["trace_id"], span["parent_id"]) == (trace_id, span_id)
    [got] = there.received
    [pushed] = [span for span in spans(file) if span["name"] == "push script"]
    assert str(got.header("traceparent")).split("-")[2] == pushed["context"]["span_id"][2:]


def spans(file: Path) -> list[Mapping[str, Any]]:
    """Return the spans in the file, except for a last line that is still being written."""
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]
