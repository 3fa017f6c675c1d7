"""The commands and programs of the guides on the client, as shown but for the server's address."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pulljobs.models import ArchivedJob, Job
from pulljobs.publishing import publish_many
from tests.client.environments import without_django
from tests.client.test_flow import running
from tests.client.worlds import Live
from tests.guides import texts
from tests.requirements import require
from tests.sessions import wait_until

SHELL_GUIDE = "docs/guides/workers-without-django.md"
PYTHON_GUIDE = "docs/guides/python-client.md"
SERVED_AT = "http://localhost:8000"
MARK = "=== "


@pytest.fixture(scope="module")
def programs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create an interpreter without Django, and return the directory of its programs."""
    return without_django(tmp_path_factory.mktemp("without_django"))


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_a_machine_without_django_does_it_all(live: Live, programs_dir: Path) -> None:
    """A script fetches, acks, nacks, renews, publishes and consumes, in sync and async code."""
    script = Path(__file__).with_name("without_django.py")
    command = [str(programs_dir / "python"), "-I", str(script), live.base_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == "done\n", done.stderr
    assert ArchivedJob.objects.filter(state="DELIVERED").count() == 8


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_the_commands_of_the_guide(live: Live, programs_dir: Path, tmp_path: Path) -> None:
    """All commands and programs of the guides run without Django, and print what they promise."""
    require("bash")
    for name, program in programs(live).items():
        (tmp_path / name).write_text(program)
    commands = [*texts(SHELL_GUIDE, "sh"), *texts(PYTHON_GUIDE, "sh")]
    script = f"\necho; echo '{MARK}'\n".join(commands).replace(SERVED_AT, live.base_url)
    outputs = _run(script, tmp_path, programs_dir).split(MARK)
    (_, published, consumed, looked, invoiced, digested, fetched) = outputs
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
    """The guide's program handles messages in batches, and the last ones when it stops."""
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
    """Return the programs of the guide by their file names, which are in their first lines."""
    named = [text.partition("\n") for text in texts(PYTHON_GUIDE, "python")]
    return {
        name.removeprefix("# "): code.replace(SERVED_AT, live.base_url) for name, _, code in named
    }


def _run(script: str, directory: Path, programs_dir: Path) -> str:
    environment = {**os.environ, "PATH": f"{programs_dir}{os.pathsep}{os.environ['PATH']}"}
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
