"""Runs over HTTP and in the admin: what they show, and who may act on them."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from pulljobs import ids
from pulljobs.models import AuditEntry
from pulljobs.states import State
from pulljobs.testing import drain
from pulljobs.workflows import Run, create_signal_token
from pulljobs.workflows.models import RunSignal, WorkflowStep
from tests.workflows.runs.conftest import Bench

ADMIN = "/admin/pulljobs_workflows/workflowrun"
JSON = "application/json"


@pytest.fixture
def run_id(bench: Bench) -> int:
    def approve(run: Run) -> Any:
        run.step("charge", lambda: "receipt <b>")
        return run.wait("approval")

    bench.workflow(approve)
    run_id = bench.start({"order": 7})
    drain()
    return run_id


def client_with(*permissions: str) -> Client:
    user = User.objects.create_user("olga", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def test_a_user_with_the_permission_reads_a_run_and_sends_it_a_signal(run_id: int) -> None:
    client = client_with("view_workflowrun", "signal_workflowrun")
    shown = client.get(f"/run/{ids.encode(run_id)}").json()
    assert (shown["State"], shown["WaitsFor"]) == (State.QUEUED, "signal approval")
    assert [step["Name"] for step in shown["Steps"]] == ["charge", "approval"]
    url = f"/run/{ids.encode(run_id)}/signal/approval?dedupe_id=a"
    assert client.post(url, b'{"by": "olga"}', content_type=JSON).json() == {"Sent": True}
    assert client.post(url, b"1", content_type=JSON).json() == {"Sent": False}
    assert client.post(url, b"{", content_type=JSON).status_code == 400
    assert client.post(url.replace("/run/", "/run/x"), b"1", content_type=JSON).status_code == 404
    assert AuditEntry.objects.filter(by="olga", act="signal").count() == 2
    assert RunSignal.objects.get().payload == {"by": "olga"}


def test_no_permission_no_signal(run_id: int) -> None:
    client = client_with("view_workflowrun")
    url = f"/run/{ids.encode(run_id)}/signal/approval"
    assert client.post(url, b"1", content_type=JSON).status_code == 403
    assert client.post(f"{ADMIN}/{run_id}/signal/", {"name": "approval"}).status_code == 403
    assert not RunSignal.objects.exists()


def test_a_token_sends_its_signal_once_and_no_other(run_id: int) -> None:
    token = create_signal_token(run_id, "approval")

    def send(given: str) -> int:
        headers = {"Pulljobs-Signal-Token": given}
        sent = Client().post("/signal", b"true", content_type=JSON, headers=headers)
        return sent.status_code

    assert [send("guessed"), send(token), send(token)] == [403, 200, 403]
    assert RunSignal.objects.get().payload is True


def test_the_page_of_a_run_shows_its_steps_and_masks_their_results(run_id: int) -> None:
    masked = client_with("view_workflowrun").get(f"{ADMIN}/{run_id}/change/").content.decode()
    assert "<strong>charge</strong>" in masked
    assert "receipt" not in masked
    User.objects.all().delete()
    client = client_with("view_workflowrun", "view_message", "redrive_workflowrun")
    shown = client.get(f"{ADMIN}/{run_id}/change/").content.decode()
    assert "receipt &lt;b&gt;" in shown
    assert "Redrive from here" in shown
    assert "Send signal" not in shown
    assert "signal approval" in client.get(f"{ADMIN}/").content.decode()
    assert client.post(f"{ADMIN}/{run_id}/redrive/", {"step": "1"}).status_code == 302
    assert not WorkflowStep.objects.exists()
