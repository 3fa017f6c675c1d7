"""Runs over HTTP and in the admin: what they show, and who may act on them."""

import html
import re
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from pulljobs import ids, jobs, operating, publishing
from pulljobs.handlers import ClaimedJob, handler
from pulljobs.models import AuditEntry, Job
from pulljobs.models.fields import ClockTime
from pulljobs.states import State
from pulljobs.testing import drain
from pulljobs.workflows import Run, create_signal_token, reading, signal
from pulljobs.workflows.models import RunSignal, WorkflowRun, WorkflowStep
from pulljobs.workflows.replay import FOREVER
from tests.admin.pages import post_form, read_page, rows
from tests.factories import ConsumerFactory
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
    drain()
    late = client.post(url, b"1", content_type=JSON)
    assert (late.status_code, "ignore_missing" in late.json()["detail"]) == (409, False)
    assert "no more signals. Publish its message again" in late.json()["detail"]


def test_a_wait_without_a_time_limit_is_due_at_no_time(run_id: int) -> None:
    client = client_with("view_workflowrun", "view_job")
    assert client.get(f"/run/{ids.encode(run_id)}").json()["AvailableAt"] is None
    assert jobs.get(run_id).available_at is None
    out = StringIO()
    for command in ("list", f"inspect job {run_id}", f"explain {run_id}"):
        call_command("pulljobs", *command.split(), stdout=out)
    for page in ("", f"{run_id}/change/"):
        out.write(client.get(f"/admin/pulljobs/job/{page}").content.decode())
    assert "approval" in out.getvalue()
    assert f"{(timezone.now() + FOREVER).year}-" not in out.getvalue()
    assert "due in" not in out.getvalue()


def test_the_runs_of_a_message_are_found_by_its_id(bench: Bench) -> None:
    """`/runs` finds runs by client message id, even before they start, when signals can be sent."""
    bench.workflow(lambda run: run.wait("approval"))
    channel = bench.consumer.channel.name
    other = ConsumerFactory.create(channel=bench.consumer.channel)
    sent = publishing.publish(channel, "x", message_id="order-17")
    client = client_with("view_workflowrun", "signal_workflowrun")
    url = f"/runs?channel={channel}&message=order-17"
    listed = client.get(url).json()["Result"]
    assert [job["Workflow"] for job in listed] == [None, None]
    ids_of = {job["Consumer"]: job["ID"] for job in listed}
    assert sorted(ids_of.values()) == sorted(map(ids.encode, sent.job_ids))
    run_id = ids_of[bench.consumer.name]
    assert client.post(f"/run/{run_id}/signal/approval", b"1", content_type=JSON).json()["Sent"]
    drain()
    by_consumer = {job["Consumer"]: job for job in client.get(url).json()["Result"]}
    assert by_consumer[bench.consumer.name]["State"] == State.DELIVERED
    assert by_consumer[bench.consumer.name]["Workflow"]
    assert by_consumer[other.name]["Workflow"] is None
    for unknown in (f"/runs?channel={channel}", f"/runs?channel={channel}&message=x", "/runs"):
        assert client.get(unknown).status_code == 404
    assert Client().get(url).status_code == 401


@pytest.mark.parametrize(("below", "shown"), [(10**30, 1), (-(10**30), 0)])
def test_a_page_of_runs_may_begin_at_any_number(below: int, shown: int, run_id: int) -> None:
    """The admin's list of runs accepts a filter by ids beyond the range of the database."""
    client = client_with("view_workflowrun")
    assert len(rows(read_page(client, f"{ADMIN}/", id__lt=below))) == shown


def test_a_sleep_ends_when_it_is_due(bench: Bench) -> None:
    """The answer gives the due time of a sleep as its end, although no claim writes that end."""

    def rest(run: Run) -> None:
        run.sleep("night", timedelta(hours=8))

    bench.workflow(rest)
    run_id = bench.start()
    drain()
    client = client_with("view_workflowrun")

    def read_step() -> Any:
        [step] = client.get(f"/run/{ids.encode(run_id)}").json()["Steps"]
        return step

    assert read_step()["EndedAt"] is None
    drain(delayed=True)
    assert read_step()["EndedAt"] == read_step()["DueAt"]


def test_a_run_that_was_killed_asleep_has_no_end_of_the_sleep(bench: Bench) -> None:
    def rest(run: Run) -> None:
        run.sleep("night", timedelta(hours=8))

    bench.workflow(rest)
    run_id = bench.start()
    drain()
    operating.kill([run_id], by="olga")
    WorkflowStep.objects.update(due_at=ClockTime())
    [step] = reading.get(run_id).steps
    assert step.is_pending


def test_a_run_whose_job_was_pruned_is_answered_404(run_id: int) -> None:
    client = client_with("view_workflowrun")
    Job.objects.all().delete()
    assert WorkflowRun.objects.exists(), "runs are forgotten after their jobs"
    answer = client.get(f"/run/{ids.encode(run_id)}")
    assert answer.status_code == 404
    assert str(run_id) in answer.content.decode()


def test_results_are_read_only_for_the_page_that_shows_them(run_id: int) -> None:
    """Pages of a run that show no results do not read them, as they can be large together."""
    client = client_with("view_workflowrun", "redrive_workflowrun")
    read = 'pulljobs_step"."result"'
    with CaptureQueriesContext(connection) as captured:
        assert client.get(f"/run/{ids.encode(run_id)}").status_code == 200
        for page in ("change", "redrive"):
            assert client.get(f"{ADMIN}/{run_id}/{page}/").status_code == 200
    assert len([each for each in captured if 'FROM "pulljobs_step' in each["sql"]]) == 3
    assert not [each["sql"] for each in captured if read in each["sql"]]


def test_no_permission_no_signal(run_id: int) -> None:
    client = client_with("view_workflowrun")
    url = f"/run/{ids.encode(run_id)}/signal/approval"
    assert client.post(url, b"1", content_type=JSON).status_code == 403
    assert client.post(f"{ADMIN}/{run_id}/signal/", {"name": "approval"}).status_code == 403
    assert not RunSignal.objects.exists()


def test_a_page_that_is_sent_twice_sends_one_signal(run_id: int) -> None:
    client, url = client_with("view_workflowrun", "signal_workflowrun"), f"{ADMIN}/{run_id}/signal/"
    for _page in range(2):
        form = client.get(url).context["form"]
        page = {"name": "approval", "dedupe_id": str(form["dedupe_id"].value())}
        for result in ("The signal was sent.", "This page had sent its signal before."):
            assert result in client.post(url, page, follow=True).content.decode()
    assert RunSignal.objects.count() == 2


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


def test_a_redrive_is_done_once_however_often_the_button_of_a_page_is_pressed(run_id: int) -> None:
    client = client_with("view_workflowrun", "redrive_workflowrun")
    url = f"{ADMIN}/{run_id}/redrive/"
    for _ in range(2):
        [opened] = re.findall(r'name="opened" [^>]*?value="([^"]+)"', read_page(client, url))
        form = {"step": "1", "opened": html.unescape(opened)}
        assert post_form(client, url, form) == ["The run goes on."]
        drain()
        steps = list(WorkflowStep.objects.values("name", "started_at"))
        [refused] = post_form(client, url, form)
        assert "was not redriven again" in refused
        assert list(WorkflowStep.objects.values("name", "started_at")) == steps


def listed(client: Client, **query: Any) -> list[str]:
    """Return the first word of each row of the list of runs, which is its id."""
    return [row.split()[0] for row in rows(read_page(client, f"{ADMIN}/", **query))]


def test_the_list_of_runs_has_filters_and_a_search(bench: Bench, run_id: int) -> None:
    channel = bench.consumer.channel.name
    [other] = publishing.publish(channel, {"order": 8}, key="customer-7").job_ids
    drain()
    WorkflowRun.objects.filter(id=other).update(workflow="shop.refund", version=2)
    ended = bench.start({"order": 9})
    drain()
    signal(ended, "approval")
    Job.objects.filter(id=ended).update(available_at="2026-01-01T00:00:00Z")
    drain()
    client = client_with("view_workflowrun", "view_message")
    first, second, third = (ids.encode(each) for each in (run_id, other, ended))
    assert listed(client) == [third, second, first]
    assert listed(client, state="QUEUED") == [second, first]
    assert listed(client, state="ended") == [third]
    assert listed(client, state="DEAD") == []
    assert listed(client, workflow="shop.refund") == [second]
    assert listed(client, version="1") == [third, first]
    assert listed(client, version="nonsense") == []
    assert listed(client, version="99999999999") == []
    assert listed(client, workflow="\0") == listed(client, state="\0") == []
    assert listed(client, q=first) == [first]
    assert listed(client, q=str(Job.objects.get(id=other).message_id)) == [second]
    assert listed(client, q="customer-7") == [second]
    assert listed(client, q='"order": 8', version="2") == [second]
    assert listed(client, q="customer-7", version="1") == []


def test_the_list_of_runs_takes_as_many_queries_for_many_runs_as_for_one(
    bench: Bench, run_id: int
) -> None:
    client = client_with("view_workflowrun")
    with CaptureQueriesContext(connection) as for_one:
        assert len(listed(client)) == 1
    for _number in range(5):
        bench.start()
    drain()
    with CaptureQueriesContext(connection) as for_many:
        assert len(listed(client)) == 6
    assert len(for_many) <= len(for_one)


def test_the_page_of_a_job_links_its_run_its_batch_and_its_parent(bench: Bench) -> None:
    children = ConsumerFactory.create()
    bench.workflow(lambda run: run.gather("parts", [1], channel=children.channel.name))
    run_id = bench.start()
    drain(bench.consumer.channel.name)
    child = Job.objects.get(consumer=children)
    seen = client_with("view_job", "view_workflowrun", "view_batch")
    parent = f'<a href="{ADMIN}/{run_id}/change/">'
    batch = f"/admin/pulljobs_workflows/batch/{child.batch_id}/change/"
    assert parent in read_page(seen, f"/admin/pulljobs/job/{run_id}/change/")
    of_child = read_page(seen, f"/admin/pulljobs/job/{child.pk}/change/")
    assert parent in of_child
    assert f'<a href="{batch}">' in of_child
    assert parent in read_page(seen, batch)
    assert batch in read_page(seen, f"{ADMIN}/{run_id}/change/")
    User.objects.all().delete()
    unseen = read_page(client_with("view_job"), f"/admin/pulljobs/job/{child.pk}/change/")
    assert ids.encode(run_id) in unseen
    assert "pulljobs_workflows/" not in unseen


def test_a_run_whose_job_is_forgotten_says_so(run_id: int) -> None:
    client = client_with("view_workflowrun", "redrive_workflowrun")
    Job.objects.all().delete()
    answer = client.get(f"{ADMIN}/{run_id}/change/", follow=True)
    assert "The run can&#x27;t be shown" in answer.content.decode()
    assert client.get(f"{ADMIN}/{run_id}/redrive/").status_code == 404


def test_the_page_shows_results_of_children_that_exceed_the_limit_together(bench: Bench) -> None:
    parts = Bench(ConsumerFactory.create())

    @handler(channel=parts.consumer.channel.name, consumer=parts.consumer.name)
    def render(job: ClaimedJob) -> str:
        return "x" * 10_000

    bench.workflow(lambda run: run.gather("parts", [1, 2], channel=parts.consumer.channel.name)[:0])
    run_id = bench.start()
    drain()
    page = client_with("view_workflowrun", "view_message").get(f"{ADMIN}/{run_id}/change/")
    assert "&quot;xxx" in page.content.decode()
