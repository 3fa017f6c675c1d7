"""The guide's commands and programs, word for word, in one shell."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from example_project.state import BASE_DIR
from pulljobs.models import ArchivedJob, Job
from pulljobs.publishing import publish_many
from tests.client.test_flow import running
from tests.client.worlds import Live
from tests.requirements import require
from tests.sessions import wait_until

GUIDE = BASE_DIR / "docs" / "guides" / "workers-without-django.md"
SERVED_AT = "http://localhost:8000"
MARK = "=== "


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_the_commands_of_the_guide(live: Live, tmp_path: Path) -> None:
    """Publish, consume by a command, look, fetch; then the programs."""
    require("bash")
    for name, program in programs(live).items():
        (tmp_path / name).write_text(program)
    blocks = re.findall(r"```sh\n(.*?)```", _text(live), re.DOTALL)
    told = _run(f"\necho; echo '{MARK}'\n".join(blocks), tmp_path).split(MARK)
    (_, published, consumed, looked, invoiced, digested, fetched) = told
    assert len(published.split()) == 6
    assert 'order-17: {"order": 17}' in consumed
    assert len(consumed.splitlines()) == 8
    assert '"NumQueued": 0' in looked
    assert "one more" in looked
    assert sorted(line for line in invoiced.splitlines() if line) == [
        "invoice for 1",
        "invoice for 2",
    ]
    assert "3 digested" in digested
    assert fetched.count("fetched b'") == 2
    assert Job.objects.get().error == "an order has a number"
    assert ArchivedJob.objects.filter(state="DELIVERED").count() == 6 + 1 + 2 + 3 + 2


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_the_batch_handler_of_the_guide(live: Live, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever number there is, all of it is written, and a rest when it stops."""
    program = programs(live)["batches.py"]
    made: dict[str, Any] = {}
    exec(compile(program, "batches.py", "exec"), made)
    publish_many("orders", [b"x"] * 130)
    with running(made["consumer"]):
        wait_until(lambda: ArchivedJob.objects.count() == 130)
    sizes = [int(line.split()[1]) for line in capsys.readouterr().out.splitlines()]
    assert sum(sizes) == 130
    assert max(sizes) > 10


def programs(live: Live) -> dict[str, str]:
    return dict(re.findall(r"```python\n# (\S+)\n(.*?)```", _text(live), re.DOTALL))


def _text(live: Live) -> str:
    return GUIDE.read_text(encoding="utf-8").replace(SERVED_AT, live.base_url)


def _run(script: str, directory: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(BASE_DIR)}
    done = subprocess.run(
        ["bash", "-eu", "-c", script],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout
