"""After workers were killed, no job is lost, and each is settled once."""

import json
import os
import signal

import pytest

from tests.demo.running import Project

pytestmark = [pytest.mark.slow, pytest.mark.processes]


def kill_worker(project: Project) -> int:
    """Kill all processes of a worker with 20 jobs or more in flight. Return how many it had."""
    while True:
        group, node = project.wait_for_work()
        os.killpg(group, signal.SIGSTOP)  # it claims no more between the count and the kill
        if project.held_by(node) >= 20:
            os.killpg(group, signal.SIGKILL)
            return project.held_by(node)
        os.killpg(group, signal.SIGCONT)


def test_the_sum_adds_up_after_two_kills(project: Project) -> None:
    """After two kills of a worker and one of the command, `--resume` settles each job once."""
    demo = project.demo("--limit=500", "--json")
    held = kill_worker(project)
    held += kill_worker(project)
    demo.process.kill()
    for group in project.worker_groups():
        os.killpg(group, signal.SIGKILL)
    resumed = project.demo("--resume", "--json", "--check")
    assert resumed.end() == 0, resumed.err
    summary = json.loads(resumed.out)

    assert summary["published"] == 500
    assert summary["jobs"] == 1000 == summary["delivered"] + summary["dead"]
    assert summary["duplicates"] == 0
    assert project.query(
        "SELECT job_id FROM pulljobs_archived_job GROUP BY job_id HAVING count(*) > 1"
    ) == []  # fmt: skip
    starts = project.starts()
    delivered = project.query("SELECT job_id FROM pulljobs_archived_job WHERE state = 'DELIVERED'")
    assert starts.keys() >= {job for (job,) in delivered}
    assert sum(starts[job] > 1 for (job,) in delivered) <= held
