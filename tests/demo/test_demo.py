"""`manage.py demo` prints correct sums and leaves no process behind."""

import ast
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from example_project.census.files import python_files
from example_project.state import BASE_DIR
from tests.demo.running import Demo, Project
from tests.example import processes

pytestmark = [pytest.mark.slow, pytest.mark.processes]


def refused_by_python(limit: int) -> set[str]:
    return {str(path) for path in python_files(limit) if not can_be_counted(path)}


def can_be_counted(path: Path) -> bool:
    try:
        ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return False
    return path.stat().st_size <= 200_000


def result_of(demo: Demo) -> dict[str, Any]:
    """Wait for a demo to succeed. Return the JSON of its only line on stdout."""
    assert demo.end() == 0, demo.err
    [line] = demo.out.splitlines()
    summary: dict[str, Any] = json.loads(line)
    return summary


def test_the_summary_adds_up_and_the_check_reports_every_difference(project: Project) -> None:
    """The summary has the right numbers, and dead jobs are of files that Python cannot compile.

    Every row of the archive names a process other than the command. `--check` passes, and after
    changes of rows exits with 1 and names wrong sums, nodes, counts, digests and failing files.
    """
    demo = project.demo("--json", "--limit=120", "--check")
    summary = result_of(demo)
    refused = refused_by_python(120)
    assert summary["published"] == 120
    assert summary["jobs"] == 240 == summary["delivered"] + summary["dead"]
    assert set(summary["dead_files"]["census"]) == refused
    assert summary["dead"] == len(refused) > 0
    assert summary["retried"] == summary["dead"] * 3
    assert summary["duplicates"] == 0
    assert summary["jobs_per_second"] == pytest.approx(240 / summary["seconds"], rel=0.01)
    assert max(project.starts().values()) == 4
    [(name,)] = project.query(
        "SELECT DISTINCT node.name FROM pulljobs_archived_job AS archived"
        " LEFT JOIN pulljobs_node AS node ON node.id = archived.node_id"
    )
    assert name.rpartition(":")[2] not in ("", str(demo.process.pid))
    harm(project)
    demo = project.demo("--resume", "--json", "--check")
    assert demo.end() == 1
    for complaint in (
        f"240 jobs are not {summary['delivered']} delivered + 0 dead, or 1 are not 0 done twice",
        "settled by",
        "counts differ",
        "digests differ",
        "failing files differ",
    ):
        assert complaint in demo.err


def harm(project: Project) -> None:
    for statement in (
        "UPDATE census_count SET lines = lines + 1 WHERE id = 5 RETURNING 1",
        "INSERT INTO census_count SELECT id + 1000, message_id, 1, 1, 1, 1 FROM census_count"
        " WHERE id = 5 RETURNING 1",
        "UPDATE pulljobs_archived_job SET result = NULL, node_id = NULL RETURNING 1",
        "DELETE FROM pulljobs_job RETURNING 1",
    ):
        assert project.query(statement)


def test_a_relative_state_directory_is_also_that_of_the_worker() -> None:
    with processes.project() as own:
        state = own.cluster.parent
        done = subprocess.run(
            [sys.executable, BASE_DIR / "manage.py", "demo", "--limit=3", "--json"],
            cwd=state.parent,
            env={**own.environment, "PULLJOBS_STATE_DIR": state.name},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["jobs"] == 6


@pytest.mark.parametrize(
    ("flag", "complaint"),
    [
        ("--port=70000", "'70000' is no whole number from 0 to 65535"),
        ("--limit=-1", "'-1' is no whole number from 0 on"),
        ("--concurrency=0", "'0' is no whole number from 1 on"),
    ],
)
def test_an_invalid_number_is_refused_before_anything_runs(flag: str, complaint: str) -> None:
    with pytest.raises(CommandError, match=complaint):
        call_command("demo", "--serve", flag)


def test_a_signal_ends_the_worker_too(project: Project) -> None:
    """After each of three signals no process or job in flight is left, and `--resume` goes on."""
    settled = 0
    for number, flag in (
        (signal.SIGINT, "--limit=400"),
        (signal.SIGTERM, "--resume"),
        (signal.SIGHUP, "--resume"),
    ):
        demo = project.demo(flag)
        project.wait_for_work()
        demo.signal(number)
        assert demo.end() == 130
        assert "--resume" in demo.err
        assert project.worker_groups() == set()
        assert (
            project.number("SELECT count(*) FROM pulljobs_job WHERE lease_token IS NOT NULL") == 0
        )
        before, settled = settled, project.number("SELECT count(*) FROM pulljobs_archived_job")
        assert before < settled < 800
    summary = result_of(project.demo("--json", "--resume"))
    assert (summary["jobs"], summary["duplicates"]) == (800, 0)
    assert summary["delivered"] + summary["dead"] == 800
