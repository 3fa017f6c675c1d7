"""A deploy that renames a step, with workers of the old and the new code in processes."""

import json
import os
import subprocess
import sys
from typing import Any, Final

import pytest

from example_project.state import BASE_DIR
from pulljobs import ids
from pulljobs.models import ArchivedJob
from pulljobs.publishing import publish
from pulljobs.workflows import signal
from pulljobs.workflows.models import WorkflowRun
from tests.sessions import PATIENCE_SECONDS, wait_until
from tests.worker.conftest import stage
from tests.worker.processes import Stage
from tests.workflows.deploys import CHANNEL, OLDEST

__all__ = ["stage"]

pytestmark = [pytest.mark.slow, pytest.mark.processes]
OLD: Final = {"WORKER_APPS": "pulljobs.workflows tests.workflows.deploys.old"}
NEW: Final = {"WORKER_APPS": "pulljobs.workflows tests.workflows.deploys.new"}
NEW_ONLY: Final = {**NEW, OLDEST: "2"}
"""New code that leaves runs of the old version to others."""


def check(stage: Stage, environment: dict[str, str]) -> tuple[int, Any]:
    """Run `pulljobs workflows check` in this environment. Return its exit code and its JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "django", "pulljobs", "workflows", "check", "--json"],
        cwd=BASE_DIR,
        env={**os.environ, **stage.environment, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def start_run() -> int:
    [run_id] = publish(CHANNEL, {}).job_ids
    wait_until(lambda: WorkflowRun.objects.filter(id=run_id, waiting_for="approval").exists())
    return run_id


def results() -> dict[int, Any]:
    return dict(ArchivedJob.objects.filter(state="DELIVERED").values_list("job_id", "result"))


def test_check_names_runs_that_would_break_and_they_end_on_the_old_code(stage: Stage) -> None:
    """`check` names a run that the new code would break. It is left to a worker with old code."""
    old = stage.worker(**OLD).ready()
    begun = start_run()
    code, answer = check(stage, NEW)
    [broken] = answer["broken"]
    assert (code, broken["id"], broken["version"]) == (1, ids.encode(begun), 1)
    assert "step 'bill' where the run has step 'charge'" in broken["problem"]
    code, answer = check(stage, NEW_ONLY)
    assert (code, answer) == (0, {"replayed": 0, "left": 1, "broken": []})

    old.stop()
    new = stage.worker(**NEW_ONLY).ready()
    signal(begun, "approval")
    later = start_run()
    wait_until(lambda: f"Run {ids.encode(begun)}" in new.log)
    assert "it is left to workers that accept it" in new.log
    signal(later, "approval")
    wait_until(lambda: bool(results()))
    assert results() == {later: [2, "billed", "sent"]}

    stage.worker(**OLD).ready()
    wait_until(lambda: begun in results(), seconds=3 * PATIENCE_SECONDS)
    assert results()[begun] == [1, "charged", "sent"]
    assert new.process.poll() is None
