"""A worker that is killed loses nothing and does nothing twice."""

import json
import os
import signal

import pytest

from tests.demo.running import Project

pytestmark = [pytest.mark.slow, pytest.mark.processes]


def kill_worker(project: Project) -> int:
    """Kill -9 all of the worker while it holds 20 jobs or more; how many it held."""
    while True:
        group, node = project.wait_for_work()
        os.killpg(group, signal.SIGSTOP)  # So that what is counted is what is killed.
        if project.held_by(node) >= 20:
            os.killpg(group, signal.SIGKILL)
            return project.held_by(node)
        os.killpg(group, signal.SIGCONT)


def test_killed_twice_the_sum_adds_up(project: Project) -> None:
    """Once the command starts the worker again; then it is killed too, and a new one resumes."""
    demo = project.demo("--limit=500", "--json")
    held = kill_worker(project)
    held += kill_worker(project)
    demo.process.kill()
    for group in project.worker_groups():
        os.killpg(group, signal.SIGKILL)
    resumed = project.demo("--resume", "--json", "--check")
    assert resumed.end() == 0, resumed.err
    found = json.loads(resumed.out)

    assert found["published"] == 500
    assert found["jobs"] == 1000 == found["delivered"] + found["dead"]
    assert found["duplicates"] == 0
    assert project.query(
        "SELECT job_id FROM pulljobs_archived_job GROUP BY job_id HAVING count(*) > 1"
    ) == []  # fmt: skip
    starts = project.starts()
    delivered = project.query("SELECT job_id FROM pulljobs_archived_job WHERE state = 'DELIVERED'")
    assert starts.keys() >= {job for (job,) in delivered}
    assert sum(starts[job] > 1 for (job,) in delivered) <= held
