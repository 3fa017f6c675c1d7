"""The commands of the guides on the broker protocol and job POSTs, as shown but for the address."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import override_settings
from pytest_django.live_server_helper import LiveServer

from pulljobs.models import ArchivedJob, Channel, Job, Message, Producer
from pulljobs.states import State
from tests.guides import texts
from tests.requirements import require

GUIDE = "docs/guides/broker-protocol.md"
JOB_POSTS = "docs/guides/job-posts.md"
JSON = re.compile(r"^\{.*\}$", re.MULTILINE)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


@pytest.mark.processes
@override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"])  # quick
def test_the_commands_of_the_guides_work(live_server: LiveServer, tmp_path: Path) -> None:
    require("curl")
    User.objects.create_superuser("boss", password="secret")
    (tmp_path / "order.xml").write_text("<order id='17'/>")
    (tmp_path / "logo.png").write_bytes(PNG)
    commands = texts(GUIDE, "sh")
    outputs = [_run(command, tmp_path, live_server.url) for command in commands[:3]]
    channel, shop, billing = map(json.loads, outputs)
    _like_the_guide(channel)
    assert (shop["Name"], billing["Type"]) == ("The shop", "pull")
    outputs = [
        _run(command, tmp_path, live_server.url, CONSUMER_TOKEN=billing["Token"])
        for command in commands[3:]
    ]
    changed, published, others, later, read, dead = outputs
    assert _statuses(changed) == ["200"]
    assert Channel.objects.get().has_token("channel-token")
    assert _statuses(published) == ["201"]
    [answered] = texts(GUIDE, "http")
    assert set(answered.splitlines()) <= set(published.splitlines())
    assert _statuses(others) == ["201", "201"]
    assert bytes(Message.objects.get(content_type="image/png").payload) == PNG
    assert (_statuses(later), json.loads(JSON.findall(later)[-1])["messageId"]) == (
        ["201"],
        "wishes",
    )
    message, listed, _status = map(json.loads, JSON.findall(read))
    assert message["Headers"] == {"Lang": "de"}
    assert len(listed["Result"]) == Job.objects.count() == 3
    assert _statuses(dead) == ["202"]
    assert Producer.objects.get().has_token("shop-token")
    settled = _run(
        "\n".join(texts(JOB_POSTS, "sh")),
        tmp_path,
        live_server.url,
        CONSUMER_TOKEN=billing["Token"],
    )
    assert _statuses(settled) == ["202"]
    assert ArchivedJob.objects.get().state == State.DELIVERED


def _like_the_guide(channel: dict[str, str]) -> None:
    [text] = texts(GUIDE, "json")
    shown = json.loads(text)
    same = {key for key in shown if shown[key] == channel[key]}
    assert list(shown) == list(channel)
    assert same == set(shown) - {"Token", "ChangedAt"}
    assert len(channel["Token"]) == len(shown["Token"])


def _statuses(output: str) -> list[str]:
    return re.findall(r"^HTTP/1.1 (\d+)", output, re.MULTILINE)


def _run(command: str, place: Path, url: str, **variables: str) -> str:
    """Run a command and return its output, with a newline after each body that curl prints."""
    known = {"USER_NAME": "boss", "PASSWORD": "secret", "BROKER": url, **variables}
    script = command.replace("BROKER=http://localhost:8000\n", "").replace(
        "curl -s", "curl -s -w '\\n'"
    )
    done = subprocess.run(
        ["bash", "-eu", "-c", script],
        env=os.environ | known,
        cwd=place,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
