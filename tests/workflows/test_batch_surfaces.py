"""Batches in commands, over HTTP, in the admin, and in verify, doctor and metrics."""

import json
import re
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from prometheus_client import REGISTRY
from rest_framework.authtoken.models import Token

from pulljobs import batches, ids
from pulljobs.diagnosis import doctor
from pulljobs.engine import telemetry
from pulljobs.metrics import recorder
from pulljobs.models import AuditEntry, BatchSum, Consumer, Job
from pulljobs.operating import prune
from pulljobs.workflows.admin.batches import group_by_error
from pulljobs.workflows.batches import gauges, reading, verifying
from pulljobs.workflows.batches.reading import BatchView, DeadMember
from pulljobs.workflows.batches.telemetry import BatchCompleted
from pulljobs.workflows.models import Batch, BatchPart
from tests.admin.conftest import browser_of
from tests.factories import USING
from tests.sessions import query
from tests.workflows.conftest import endings, fill, settle, sweep

pytestmark = pytest.mark.django_db
COMPLETED = ("pulljobs_batches_completed_total", {"event": "success"})
PERMISSIONS = [
    ("GET", "/batches", "view"),
    ("POST", "/batches", "add"),
    ("GET", "/batch/{}", "view"),
    ("POST", "/batch/{}/members", "add"),
    ("POST", "/batch/{}/close", "add"),
    ("POST", "/batch/{}/cancel", "cancel"),
    ("POST", "/batch/{}/redrive", "redrive"),
]


def run_json(*arguments: str) -> Any:
    output = StringIO()
    call_command("pulljobs", "batches", *arguments, "--json", stdout=output)
    return json.loads(output.getvalue())


def run_text(*arguments: str) -> str:
    output = StringIO()
    call_command("pulljobs", "batches", *arguments, stdout=output)
    return output.getvalue()


class BatchUser:
    """HTTP client of a user with these permissions on batches."""

    def __init__(self, *verbs: str) -> None:
        made = User.objects.create(username="-".join(verbs) or "none")
        codenames = [f"{verb}_batch" for verb in verbs]
        made.user_permissions.add(*Permission.objects.filter(codename__in=codenames))
        token = Token.objects.create(user=made).key
        self._client = Client(headers={"Authorization": f"Token {token}"})

    def send(self, method: str, url: str, given: Any = None) -> Any:
        body = b"" if given is None else json.dumps(given)
        return self._client.generic(method, url, body, "application/json")


def test_list_and_show_have_exact_counts_and_dead_members(consumer: Consumer) -> None:
    made = fill(consumer, 4)
    settle(consumer, delivered=1, dead=1)
    [listed] = run_json("list", "--live", "--name", "nightly")["batches"]
    assert (listed["id"], listed["progress"], listed["live"]) == (str(made), 50.0, 2)
    assert "nightly" in run_text("list")
    shown = run_json("show", str(made))
    assert [member["error"] for member in shown["dead_members"]] == ["bad"]
    text = run_text("show", str(made))
    assert "Dead members" in text
    assert re.search(r"^progress +50\.0 %$", text, re.MULTILINE)
    assert re.search(r"^created at +[-\d]+ [:\d]+ UTC$", text, re.MULTILINE)
    with pytest.raises(CommandError, match="There is no batch"):
        run_json("show", ids.encode(5))


def test_show_lists_a_bounded_number_of_the_batches_in_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "SHOWN", 2)
    outer = batches.create("outer")
    for number in range(3):
        with outer.batch(f"inner-{number}"):
            pass
    shown = run_json("show", str(outer))
    assert [each["name"] for each in shown["nested"]] == ["inner-0", "inner-1"]
    assert shown["is_more_nested"] is True
    assert "inner-1" in run_text("show", str(outer))
    assert "There are more: these are the oldest 2." in run_text("show", str(outer))
    monkeypatch.setattr(reading, "SHOWN", 3)
    assert run_json("show", str(outer))["is_more_nested"] is False
    assert "There are more" not in run_text("show", str(outer))


def test_commands_preview_and_act_with_an_entry_in_the_audit_trail(consumer: Consumer) -> None:
    made = fill(consumer, 3)
    settle(consumer, dead=1)
    assert "2 live members of batch nightly: would be killed." in run_text(
        "cancel", str(made), "--dry-run"
    )
    assert "1 dead member of batch nightly: would be redriven." in run_text(
        "redrive", str(made), "--dry-run"
    )
    with pytest.raises(CommandError, match="--yes"):
        run_text("cancel", str(made))
    assert run_json("cancel", str(made), "--yes")["killed"] == 2
    assert run_json("redrive", str(made), "--yes")["redriven"] == 3
    trail = list(AuditEntry.objects.order_by("id").values_list("act", "subject", "done"))
    assert trail == [("kill", f"batch {made}", 2), ("redrive", f"batch {made}", 3)]


def test_a_misspelt_field_of_a_batch_or_of_a_member_is_named(
    consumer: Consumer, report: Consumer
) -> None:
    """A misspelt field of a batch or of a member is refused with 400 and the right name."""
    user = BatchUser("add", "view")
    misspelt = {"Name": "http", "OnCompleted": {"Channel": report.channel.name}}
    refused = user.send("POST", "/batches", misspelt)
    assert (refused.status_code, "is OnComplete)" in refused.json()["detail"]) == (400, True)
    batch = user.send("POST", "/batches", {"Name": "http"}).json()["ID"]
    members = {"Channel": consumer.channel.name, "Messages": [{"Payload": "a", "Prio": 1}]}
    refused = user.send("POST", f"/batch/{batch}/members", members)
    assert (refused.status_code, "is Priority)" in refused.json()["detail"]) == (400, True)
    assert not Job.objects.exists()


def test_a_payload_with_half_a_surrogate_pair_is_refused(
    consumer: Consumer, report: Consumer
) -> None:
    """A payload with half a surrogate pair gets 400, as no consumer could decode it."""
    user, half = BatchUser("add", "view"), {"Payload": "\ud800"}
    form = {"Name": "http", "OnComplete": {"Channel": report.channel.name, **half}}
    refused = user.send("POST", "/batches", form)
    assert (refused.status_code, "encoded" in refused.json()["detail"]) == (400, True)
    batch = user.send("POST", "/batches", {"Name": "http"}).json()["ID"]
    members = {"Channel": consumer.channel.name, "Messages": [half]}
    refused = user.send("POST", f"/batch/{batch}/members", members)
    assert (refused.status_code, "encoded" in refused.json()["detail"]) == (400, True)
    assert not Job.objects.exists()


def test_a_batch_is_made_filled_closed_redriven_and_cancelled_over_http(
    consumer: Consumer, report: Consumer
) -> None:
    user = BatchUser("add", "view", "cancel", "redrive")
    callback = {"Channel": report.channel.name, "PayloadBase64": "iVBORw==", "Cost": 3}
    answer = user.send("POST", "/batches", {"Name": "http", "OnComplete": callback})
    assert answer.status_code == 201, answer.content
    batch = answer.json()["ID"]
    members = {
        "Channel": consumer.channel.name,
        "Messages": [
            {"Payload": "a", "Cost": 2},
            {"Payload": "b", "MessageID": "1"},
            {"MessageID": "1"},
        ],
    }
    added = user.send("POST", f"/batch/{batch}/members", members).json()
    assert added == {"Members": 2, "Duplicates": 1, "FullKeys": 0}
    assert [*Job.objects.order_by("id").values_list("cost", flat=True)] == [2, None]
    assert user.send("POST", f"/batch/{batch}/close").json()["State"] == "closed"
    settle(consumer, delivered=1, dead=1)
    sweep()
    shown = user.send("GET", f"/batch/{batch}").json()
    assert (shown["State"], shown["Progress"], shown["Dead"]) == ("completed", 100.0, 1)
    assert shown["DeadMembers"][0]["Error"] == "bad"
    assert endings(report) == [("complete", 1)]
    assert Job.objects.get(consumer=report).cost == 3
    assert user.send("POST", f"/batch/{batch}/redrive").json() == {"Redriven": 1}
    sweep()
    assert user.send("POST", f"/batch/{batch}/cancel").json() == {"Killed": 1}
    [listed] = user.send("GET", "/batches?name=http").json()["Result"]
    assert listed["ID"] == batch
    late = user.send("POST", f"/batch/{batch}/members", members)
    assert (late.status_code, "takes no members" in late.json()["detail"]) == (409, True)
    unknown = ids.encode(7)
    for verb, url in (("GET", f"/batch/{unknown}"), ("POST", f"/batch/{unknown}/close")):
        missing = user.send(verb, url)
        assert (missing.status_code, repr(unknown) in missing.json()["detail"]) == (404, True)
    assert user.send("POST", "/batches", {"Name": "x", "Parent": unknown}).status_code == 404
    assert user.send("GET", "/batch/nothing").status_code == 404
    both = {"Payload": "a", "PayloadBase64": "YQ=="}
    wrong = {"Channel": consumer.channel.name, "Messages": [both]}
    assert user.send("POST", f"/batch/{batch}/members", wrong).status_code == 400


@pytest.mark.parametrize(("method", "url", "verb"), PERMISSIONS)
def test_each_route_needs_its_permission(
    consumer: Consumer, method: str, url: str, verb: str
) -> None:
    path = url.format(fill(consumer, 1))
    others = {"view", "add", "cancel", "redrive"} - {verb}
    assert BatchUser(*others).send(method, path, {}).status_code == 403
    assert BatchUser(verb).send(method, path, {}).status_code != 403


def test_verify_finds_counts_that_differ_from_the_members(consumer: Consumer) -> None:
    made = fill(consumer, 3)
    settle(consumer, delivered=1, dead=1)
    assert verifying.verify_part().broken == {}
    BatchSum.objects.create(batch_id=made.id, delivered=1)
    assert set(verifying.verify_part().broken) == {"live_members_are_counted"}
    BatchSum.objects.create(batch_id=made.id, members=1, dead=-1)
    assert set(verifying.verify_part().broken) == {
        "members_are_counted",
        "live_members_are_counted",
        "dead_members_are_counted",
    }
    Batch.objects.update(closed_at=None, completed_at="2030-01-01T00:00Z")
    assert "complete_batch_has_no_live_member" in verifying.verify_part().broken


def test_doctor_names_refused_callbacks_unseen_members_and_forgotten_batches(
    consumer: Consumer,
) -> None:
    with batches.batch("refused", on_complete=("no-such-channel", b"")):
        pass
    sweep()
    fill(consumer, 1)
    query("UPDATE pulljobs_batch_sum SET id = id - (3600000::bigint << 22)")
    batches.create("forgotten")
    query("UPDATE pulljobs_batch SET created_at = now() - interval '8 days'")
    codes = {finding.code for finding in doctor.examine(timedelta(hours=1))}
    assert {"refused_callback", "unmerged_batches", "open_batches"} <= codes


def test_ends_of_batches_are_counted_and_live_ones_are_read(consumer: Consumer) -> None:
    end = telemetry.record_with(recorder.record)
    try:
        before = REGISTRY.get_sample_value(*COMPLETED) or 0.0
        fill(consumer, 1)
        assert list(gauges.read_samples(USING)) == [("pulljobs_batches_live", (), 1.0)]
        settle(consumer, delivered=1)
        telemetry.emit(BatchCompleted(1, 1, 1, 0))
        assert REGISTRY.get_sample_value(*COMPLETED) == before + 1
    finally:
        end()


def test_old_batches_are_deleted_with_the_ids_of_their_members(consumer: Consumer) -> None:
    fill(consumer, 1)
    fill(consumer, 1)
    settle(consumer, 1)
    sweep()
    query("UPDATE pulljobs_batch SET completed_at = completed_at - interval '2 days'")
    for _step in prune(timedelta(days=1)):
        pass
    assert Batch.objects.count() == BatchPart.objects.count() == 1


def test_a_batch_is_kept_as_long_as_the_batch_that_contains_it(consumer: Consumer) -> None:
    outer = batches.create("outer")
    with outer.batch("inner") as inner:
        inner.publish(consumer.channel.name, "0")
    settle(consumer, dead=1)
    sweep()
    query("UPDATE pulljobs_batch SET completed_at = completed_at - interval '2 days'")
    for _step in prune(timedelta(days=1)):
        pass
    assert not verifying.verify_part().broken
    assert batches.redrive(outer.id) == 1
    settle(consumer, delivered=1)
    outer.close()
    sweep()
    query("UPDATE pulljobs_batch SET completed_at = completed_at - interval '2 days'")
    for _step in prune(timedelta(days=1)):
        pass
    assert not Batch.objects.exists()


def test_pages_show_progress_and_dead_members_by_error_and_buttons_act(
    consumer: Consumer, report: Consumer
) -> None:
    with batches.batch("outer <b>", on_complete=(report.channel.name, b"")) as outer:
        with outer.batch("inner"):
            pass
        outer.publish_many(consumer.channel.name, ["a", "b", "c", "d"])
    settle(consumer, delivered=1, dead=2)
    operator = browser_of(User.objects.create_superuser("olga"))
    listing = operator.get("/admin/pulljobs_workflows/batch/").content.decode()
    assert str(outer) in listing
    assert '<td class="field-all_members">5</td><td class="field-all_dead">2</td>' in listing
    url = f"/admin/pulljobs_workflows/batch/{outer.id}/"
    with CaptureQueriesContext(connections[USING]) as first:
        shown = operator.get(f"{url}change/").content.decode()
    assert "60.0 %" in shown
    assert "outer &lt;b&gt;" in shown
    assert "<td>2</td><td>rejected</td>" in shown
    assert ">inner</a>" in shown
    assert len(first) < 30
    assert "Live now: 2." in operator.get(f"{url}cancel/").content.decode()
    operator.post(f"{url}redrive/")
    assert batches.get(outer.id).dead == 0
    operator.post(f"{url}cancel/")
    assert not Job.objects.filter(batch_id=outer.id, state="QUEUED").exists()
    assert list(AuditEntry.objects.order_by("id").values_list("by", "act", "done")) == [
        ("olga", "redrive", 2),
        ("olga", "kill", 3),
    ]
    looker = User.objects.create_user("looker", is_staff=True)
    looker.user_permissions.add(Permission.objects.get(codename="view_batch"))
    browser = browser_of(looker)
    assert 'redrive/"' not in browser.get(f"{url}change/").content.decode()
    for action in ("close", "redrive", "cancel"):
        assert browser.post(f"{url}{action}/").status_code == 403


@pytest.mark.parametrize("other", ["redrive", "cancel"])
def test_a_page_redrives_no_batch_that_was_redriven_or_cancelled_after_it_was_opened(
    consumer: Consumer, other: str
) -> None:
    with batches.batch("report") as report:
        report.publish_many(consumer.channel.name, ["a", "b", "c"])
    settle(consumer, dead=2)
    operator = browser_of(User.objects.create_superuser("olga"))
    url = f"/admin/pulljobs_workflows/batch/{report.id}/"
    shown = operator.get(f"{url}redrive/").content.decode()
    [opened] = re.findall(r'name="opened" [^>]*?value="([^"]+)"', shown)
    operator.post(f"{url}{other}/", {"opened": opened})
    settle(consumer, dead=3 if other == "redrive" else 0)
    dead = batches.get(report.id).dead
    answer = operator.post(f"{url}redrive/", {"opened": opened}, follow=True)
    assert "The batch was not redriven" in answer.content.decode()
    assert batches.get(report.id).dead == dead == 3
    operator.post(f"{url}redrive/")
    assert batches.get(report.id).dead == 0


def test_an_action_on_a_batch_that_was_just_deleted_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def get_and_delete(id: int | str) -> BatchView:
        view = get(id)
        Batch.objects.all().delete()
        return view

    get = reading.get
    with batches.batch("old") as old:
        pass
    monkeypatch.setattr(reading, "get", get_and_delete)
    operator = browser_of(User.objects.create_superuser("olga"))
    url = f"/admin/pulljobs_workflows/batch/{old.id}/close/"
    shown = operator.post(url, follow=True).content.decode()
    assert "There is no batch" in shown


def test_a_page_reads_few_of_the_batches_in_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    read_views, read = reading.read_views, []

    def note(batch_ids: list[int]) -> Any:
        read.append(len(batch_ids))
        return read_views(batch_ids)

    with batches.batch("outer") as outer:
        for number in range(23):
            with outer.batch(f"inner {number}"):
                pass
    monkeypatch.setattr(reading, "read_views", note)
    operator = browser_of(User.objects.create_superuser("olga"))
    url = f"/admin/pulljobs_workflows/batch/{outer.id}/change/"
    shown = operator.get(url).content.decode()
    assert max(read) == 21
    assert shown.count(">inner ") == 20
    assert "Only the oldest 20 are shown here." in shown


def test_dead_members_are_grouped_by_the_first_line_of_their_error(
    consumer: Consumer, rf: RequestFactory
) -> None:
    error = "IntegrityError: duplicate key\n\nTraceback ...\nDETAIL:  Key (id)=({})"
    dead = [
        DeadMember(id, consumer.channel.name, consumer.name, "rejected", error.format(id))
        for id in (1, 2)
    ]
    request = rf.get("/")
    request.user = User(is_superuser=True)
    groups = group_by_error(request, dead)
    assert [(group.members, group.error) for group in groups] == [
        (2, "IntegrityError: duplicate key")
    ]
