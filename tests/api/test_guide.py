"""The guide's commands, run as they stand."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from pytest_django.live_server_helper import LiveServer

from pulljobs import ids
from tests.api.caller import publish, subscription
from tests.requirements import require

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "pulling-over-http.md"
LEASE = re.compile(r"^X-Broker-Lease-Token: (\S+)", re.MULTILINE)


@pytest.mark.processes
def test_the_commands_of_the_guide(live_server: LiveServer) -> None:
    """List, take and settle, by curl over a socket."""
    require("curl")
    billing = subscription("orders", "billing")
    job = ids.encode(publish(payload={"id": 17}, message_id="order-17"))
    setup, *commands = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    setup = setup.replace("http://localhost:8000", live_server.url)
    known = {
        "CHANNEL_TOKEN": billing.channel_token,
        "CONSUMER_TOKEN": billing.consumer_token,
        "JOB": job,
    }
    listed, taken = (_run(setup + command, known) for command in commands[:2])
    assert json.loads(listed)["Result"][0]["ID"] == job
    [lease] = LEASE.findall(taken)
    settled = _run(setup + commands[2], known | {"LEASE": lease})
    assert [answer.split()[1] for answer in (taken, settled)] == ["202", "202"]
    assert len(commands) == 3


def _run(script: str, variables: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-eu", "-c", script],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
