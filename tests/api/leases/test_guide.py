"""The commands of the guide on pulling, as shown but for the server's address, in one shell."""

import json
import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from example_project.state import BASE_DIR
from pulljobs.models import ArchivedJob, Job, Message
from tests.guides import assert_like, texts
from tests.requirements import require

GUIDE = "docs/guides/pulling-over-http.md"
SERVED_AT = "http://localhost:8000"
MARK = "=== "


@pytest.mark.processes
def test_the_commands_of_the_guide_work(base: str, emptied: None, tmp_path: Path) -> None:
    """The commands publish, pull, renew, ack, read and purge, and the admin shows the results."""
    require("curl")
    demo = User.objects.create_superuser("demo", password="demo")
    script = f"\necho; echo '{MARK}'\n".join(texts(GUIDE, "sh")).replace(SERVED_AT, base)
    outputs = _run(script, tmp_path).split(MARK)
    (_, _, _, batch, pulled, renewed, acked, info, operated) = outputs
    for shown, output in zip(texts(GUIDE, "json"), (batch, pulled, renewed), strict=True):
        assert_like(json.loads(shown), json.loads(output))
    files = len(list((BASE_DIR / "example_project").glob("[a-z]*.py")))
    assert Message.objects.count() == files + 6
    types = Counter(Message.objects.values_list("content_type", flat=True))
    assert types["image/png"] == types["application/xml"] == 1
    assert types["text/x-python"] == files
    assert sum(name.startswith("multipart/form-data") for name in types) == 1
    assert batch.count("accepted") == 2
    assert '"Priority": 9' in pulled
    assert '"Status": "ok"' in renewed
    assert all(text in acked for text in ('"Status": "ok"', '"Result": [{', "lease_lost"))
    assert '"NumInFlight":2' in info
    assert base in info
    assert shown_in_the_admin(demo).count("DELIVERED") == 1
    assert all(text in operated for text in ("2999-12-31", '"paused"', '"PauseUntil":null'))
    purged = ArchivedJob.objects.filter(reason="purged").count()
    assert f'"Purged":{purged}' in operated
    states = Counter(Job.objects.values_list("state", flat=True))
    assert states == {"INFLIGHT": 2, "DEAD": purged}
    assert ArchivedJob.objects.filter(state="DELIVERED").count() == 1


def shown_in_the_admin(user: User) -> list[str]:
    """Return the states that the admin's list of archived jobs shows."""
    client = Client()
    client.force_login(user)
    page = client.get("/admin/pulljobs/archivedjob/").content.decode()
    return re.findall(r'field-status">.*(DELIVERED|DEAD)', page)


def _run(script: str, directory: Path) -> str:
    known = {"USER_NAME": "demo", "PASSWORD": "demo", "PROJECT": str(BASE_DIR)}
    done = subprocess.run(
        ["bash", "-eu", "-c", script],
        cwd=directory,
        env=os.environ | known,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout
