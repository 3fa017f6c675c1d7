"""Tests of the routes of schedules: who may use them, what they do, and what they refuse."""

import base64
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client, override_settings
from rest_framework.authtoken.models import Token

from pulljobs import schedules
from pulljobs.models import AuditEntry, Consumer, Message
from pulljobs.schedules.definitions import Definition
from pulljobs.schedules.firing import fire_due
from pulljobs.schedules.models import Schedule
from pulljobs.schedules.rules import format_slot
from tests.schedules.conftest import Make, make_due, message_ids, now, reasons, reread
from tests.sessions import wait_until

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)
ALL = ("view", "add", "change", "delete", "pause", "fire")
NEEDS = [
    ("GET", "/schedules", ["view"]),
    ("GET", "/schedule/each-minute", ["view"]),
    ("GET", "/schedule/each-minute/slots", ["view"]),
    ("PUT", "/schedule/each-minute", ["add", "change"]),
    ("DELETE", "/schedule/each-minute", ["delete"]),
    ("POST", "/schedule/each-minute/pause", ["pause"]),
    ("POST", "/schedule/each-minute/resume", ["pause"]),
    ("POST", "/schedule/each-minute/fire", ["fire"]),
    ("POST", "/schedule/each-minute/backfill", ["fire"]),
]


def user(*verbs: str) -> User:
    made = User.objects.create(username=f"may-{'-'.join(verbs)}")
    grant(made, *verbs)
    return made


def grant(made: User, *verbs: str) -> None:
    names = [f"{verb}_schedule" for verb in verbs]
    made.user_permissions.add(*Permission.objects.filter(codename__in=names))


class ScheduleUser:
    """HTTP client of a user."""

    def __init__(self, made: User) -> None:
        token = Token.objects.create(user=made).key
        self.client = Client(headers={"Authorization": f"Token {token}"})

    def send(self, method: str, url: str, given: Any = None, seen: Any = None) -> Any:
        """Send `given` as JSON, to be refused if the row has changed since the answer `seen`."""
        body = b"" if given is None else json.dumps(given)
        headers = {} if seen is None else {"If-Unmodified-Since": seen["Last-Modified"]}
        return self.client.generic(method, url, body, "application/json", headers=headers)


@pytest.fixture
def caller() -> ScheduleUser:
    return ScheduleUser(user(*ALL))


@pytest.mark.parametrize(("method", "url", "verbs"), NEEDS)
def test_each_route_needs_a_login_and_its_permissions(
    make: Make, method: str, url: str, verbs: list[str]
) -> None:
    make()
    assert Client().generic(method, url).status_code == 401
    made = user(*set(ALL) - set(verbs))
    caller = ScheduleUser(made)
    for verb in verbs:
        refused = caller.send(method, url)
        assert (refused.status_code, refused["Content-Type"]) == (403, "application/problem+json")
        grant(made, verb)
    assert caller.send(method, url).status_code not in (401, 403)


def test_read_only_access_shows_schedules_but_permits_no_action(make: Make) -> None:
    make()
    with override_settings(PULLJOBS={"API_ACCESS": "read-only"}):
        shown = Client().get("/schedule/each-minute")
        assert (shown.status_code, shown.json()["Name"]) == (200, "each-minute")
        assert Client().post("/schedule/each-minute/fire").status_code == 401


def test_a_put_creates_a_schedule_and_its_answer_shows_the_next_slots(
    caller: ScheduleUser, consumer: Consumer
) -> None:
    given = {
        "Channel": consumer.channel.name,
        "Cron": "0 6 * * 1-5",
        "Timezone": "Europe/Berlin",
        "Missed": "all",
        "MissedBound": 7,
        "MisfireGraceSeconds": 60,
        "Overlap": "skip",
        "JitterSeconds": 5,
        "Payload": '{"kind": "all"}',
        "ContentType": "application/json",
        "Headers": {"a": "b"},
        "Key": "k",
        "Priority": 3,
    }
    shown = caller.send("PUT", "/schedule/daily", given)
    assert shown.status_code == 200, shown.content
    assert len(shown.json()["Upcoming"]) == 10
    assert shown.json()["Rule"].endswith("(Europe/Berlin)")
    assert (shown.json()["State"], "Payload" in shown.json()) == ("active", False)
    row = Schedule.objects.get(name="daily")
    assert (row.cron, row.missed, row.missed_bound, row.overlap) == (
        "0 6 * * 1-5",
        "all",
        7,
        "skip",
    )
    assert (row.misfire_grace, row.jitter) == (MINUTE, timedelta(seconds=5))
    assert (bytes(row.payload), row.headers, row.key) == (b'{"kind": "all"}', {"a": "b"}, "k")
    assert (row.priority, row.is_declared) == (3, False)


def test_a_payload_is_shown_to_users_who_may_view_messages(make: Make) -> None:
    make(payload=b"\xff\x00")
    viewer = user("view")
    caller = ScheduleUser(viewer)
    assert "Payload" not in caller.send("GET", "/schedule/each-minute").json()
    viewer.user_permissions.add(Permission.objects.get(codename="view_message"))
    shown = caller.send("GET", "/schedule/each-minute").json()
    assert (base64.b64decode(shown["Payload"]), shown["PayloadEncoding"]) == (b"\xff\x00", "base64")


def test_a_put_over_an_existing_schedule_needs_the_version_that_the_caller_saw(
    caller: ScheduleUser, make: Make
) -> None:
    row = make(priority=5)
    given = {"Channel": row.channel_name, "Cron": "0 7 * * *"}
    assert caller.send("PUT", "/schedule/each-minute", given).status_code == 400
    seen = caller.send("GET", "/schedule/each-minute")
    Schedule.objects.update(changed_at=now() - MINUTE)
    assert caller.send("PUT", "/schedule/each-minute", given, seen).status_code == 412
    assert caller.send("DELETE", "/schedule/each-minute", None, seen).status_code == 412
    seen = caller.send("GET", "/schedule/each-minute")
    assert caller.send("PUT", "/schedule/each-minute", given, seen).status_code == 200
    changed = reread(row)
    assert (changed.cron, changed.priority) == ("0 7 * * *", 0)
    seen = caller.send("GET", "/schedule/each-minute")
    assert caller.send("DELETE", "/schedule/each-minute", None, seen).status_code == 204
    assert not Schedule.objects.exists()
    entries = AuditEntry.objects.order_by("id").values_list("act", "subject")
    assert list(entries) == [
        ("update", "schedule each-minute: content_type, cron, payload, priority"),
        ("delete", "schedule each-minute"),
    ]


def test_each_change_of_a_second_makes_a_version_of_its_own(
    caller: ScheduleUser, make: Make
) -> None:
    row = make()
    given = {"Channel": row.channel_name, "Cron": "0 7 * * *"}
    seen = caller.send("GET", "/schedule/each-minute")
    wait_until(lambda: now().microsecond < 300_000)
    changes = (
        lambda: caller.send("PUT", "/schedule/each-minute", given, seen),
        lambda: schedules.pause("each-minute"),
        lambda: schedules.resume("each-minute"),
    )
    for change in changes:
        change()
        before, seen = seen, caller.send("GET", "/schedule/each-minute")
        assert before["Last-Modified"] != seen["Last-Modified"]
        assert caller.send("PUT", "/schedule/each-minute", given, before).status_code == 412


def test_a_put_with_no_more_than_a_rule_resets_every_option_to_that_of_create(
    caller: ScheduleUser, make: Make
) -> None:
    row = make(
        key="k", priority=5, headers={"a": "b"}, overlap="skip", missed="all", missed_bound=7,
        misfire_grace=MINUTE, jitter=timedelta(seconds=9), timezone="Asia/Tokyo",
        ends_at=now() + timedelta(days=9),
    )  # fmt: skip
    plain = make("plain", cron="0 7 * * *", payload="")
    given = {"Channel": row.channel_name, "Cron": "0 7 * * *"}
    seen = caller.send("GET", "/schedule/each-minute")
    assert caller.send("PUT", "/schedule/each-minute", given, seen).status_code == 200
    reset = Definition.from_row(reread(row))
    assert replace(reset, name="plain") == Definition.from_row(reread(plain))


def test_a_declared_schedule_can_be_changed_over_http_and_stays_declared(
    caller: ScheduleUser, make: Make
) -> None:
    row = make()
    Schedule.objects.update(is_declared=True)
    seen = caller.send("GET", "/schedule/each-minute")
    given = {"Channel": row.channel_name, "Cron": "0 7 * * *"}
    assert caller.send("PUT", "/schedule/each-minute", given, seen).json()["IsDeclared"]
    assert reread(row).cron == "0 7 * * *"


def test_a_time_zone_that_this_machine_does_not_know_is_named(
    caller: ScheduleUser, make: Make
) -> None:
    make()
    Schedule.objects.update(timezone="Mars/Base")
    shown = caller.send("GET", "/schedule/each-minute")
    assert (shown.status_code, shown.json()["Upcoming"]) == (200, [])
    assert "does not know the time zone 'Mars/Base'" in shown.json()["Error"]
    [listed] = caller.send("GET", "/schedules").json()["Result"]
    assert "Mars/Base" in listed["Error"]


def test_an_interval_that_a_put_leaves_alone_keeps_its_slots(
    caller: ScheduleUser, make: Make
) -> None:
    row = make(every=timedelta(hours=1), starts_at=now() - 10 * MINUTE)
    given = {"Channel": row.channel_name, "EverySeconds": 3600, "Payload": "new"}
    seen = caller.send("GET", "/schedule/each-minute")
    assert caller.send("PUT", "/schedule/each-minute", given, seen).status_code == 200
    assert reread(row).next_slot == row.next_slot


def test_a_put_without_a_start_takes_it_from_a_cron_rule(caller: ScheduleUser, make: Make) -> None:
    row = make(cron="0 7 * * *", starts_at=now() + 10 * MINUTE)
    seen = caller.send("GET", "/schedule/each-minute")
    given = {"Channel": row.channel_name, "Cron": "0 7 * * *"}
    assert caller.send("PUT", "/schedule/each-minute", given, seen).json()["StartsAt"] is None
    assert reread(row).starts_at is None


@pytest.mark.parametrize(
    ("change", "status", "advice"),
    [
        ({"Cron": "0 25 * * *"}, 400, "field 2 (hour)"),
        ({"Cron": None}, 400, "Give a rule"),
        ({"Timezone": "Berlin"}, 400, "Europe/Berlin"),
        ({"Channel": "nowhere"}, 409, "no channel 'nowhere'"),
        ({"Channel": None}, 400, "Channel must be text"),
        ({"Channel": "c" * 256}, 400, "text of at most 255 characters, without NUL"),
        ({"Key": "nul\x00"}, 400, "text of at most 255 characters, without NUL"),
        ({"Key": "\ud800"}, 400, "text of at most 255 characters, without NUL"),
        ({"ContentType": "text\nplain"}, 400, "content_type must be one line"),
        ({"Missed": "never"}, 400, "must be one of skip, latest, all"),
        ({"MissedBound": 10**6}, 400, "from 1 to 1,000"),
        ({"Headers": {"a": 1}}, 400, "must be an object of texts"),
        ({"Producer": "nobody"}, 400, "does not exist"),
        ({"PayloadBase64": "?"}, 400, "must be base64"),
        ({"Payload": "a", "PayloadBase64": "YQ=="}, 400, "must not both be given"),
        ({"Payload": "x" * 1024 * 1025}, 413, "limit"),
        ({"StartsAt": "2030-01-31 12:00"}, 400, "2030-01-31T12:00:00Z"),
        ({"StartsAt": "9999-12-31T23:59:59Z"}, 400, "choose a year"),
    ],
)
def test_options_that_cannot_work_are_refused_with_advice(
    caller: ScheduleUser, consumer: Consumer, change: dict[str, Any], status: int, advice: str
) -> None:
    given = {"Channel": consumer.channel.name, "Cron": "0 6 * * *", **change}
    refused = caller.send("PUT", "/schedule/bad", given)
    assert (refused.status_code, refused.json()["status"]) == (status, status)
    assert advice in refused.json()["detail"]
    assert not Schedule.objects.exists()


def test_a_key_and_a_cron_rule_may_have_any_characters_that_publish_accepts(
    caller: ScheduleUser, consumer: Consumer
) -> None:
    key = "M\u00fcller\u00a0GmbH \U0001f469\u200d\U0001f4bb"
    given = {"Channel": consumer.channel.name, "Cron": "0\t6 * * *", "Key": key}
    made = caller.send("PUT", "/schedule/early", given)
    assert (made.status_code, made.json()["Key"]) == (200, key)
    assert made.json()["Rule"] == "At 06:00 every day (UTC)"


def test_actions_are_done_and_noted_in_the_audit_trail(caller: ScheduleUser, make: Make) -> None:
    row = make()
    end = now().replace(second=0, microsecond=0) - 60 * MINUTE
    window = {"From": format_slot(end - 3 * MINUTE), "To": format_slot(end)}
    fired = caller.send("POST", "/schedule/each-minute/fire").json()
    assert (fired["Reason"], fired["Error"]) == ("now", None)
    paused = caller.send("POST", "/schedule/each-minute/pause").json()
    assert (paused["State"], paused["PausedUntil"]) == ("paused", None)
    until = {"Until": format_slot(now().replace(microsecond=0) + 60 * MINUTE)}
    paused = caller.send("POST", "/schedule/each-minute/pause", until).json()
    assert paused["PausedUntil"] == until["Until"]
    assert caller.send("POST", "/schedule/each-minute/resume").json()["State"] == "active"
    filled = caller.send("POST", "/schedule/each-minute/backfill", window).json()["Result"]
    assert [slot["Reason"] for slot in filled] == ["backfill"] * 3
    assert reasons(row).count("backfill") == 3
    assert len(message_ids(row)) == 4
    acts = AuditEntry.objects.order_by("id").values_list("act", flat=True)
    assert list(acts) == ["fire", "pause", "pause", "resume", "backfill"]
    assert {entry.by for entry in AuditEntry.objects.all()} == {User.objects.get().username}


@pytest.mark.parametrize(
    ("url", "given", "status"),
    [
        ("nothing/fire", None, 404),
        ("nothing/pause", None, 404),
        ("each-minute/pause", {"Until": "2020-01-01T00:00:00Z"}, 400),
        ("each-minute/pause", {"Until": "tomorrow"}, 400),
        ("each-minute/pause", {"Untill": "2999-01-01T00:00:00Z"}, 400),
        ("each-minute/backfill", {}, 400),
        (
            "each-minute/backfill",
            {"From": "2026-01-02T00:00:00Z", "To": "2026-01-02T00:00:00Z"},
            400,
        ),
        (
            "each-minute/backfill",
            {"From": "2020-01-01T00:00:00Z", "To": "2020-02-01T00:00:00Z"},
            400,
        ),
        (
            "each-minute/backfill",
            {"From": "0001-01-01T00:00:00Z", "To": "9999-12-31T00:00:00Z"},
            400,
        ),
    ],
)
def test_an_action_that_cannot_be_done_changes_nothing(
    caller: ScheduleUser, make: Make, url: str, given: Any, status: int
) -> None:
    make()
    assert caller.send("POST", f"/schedule/{url}", given).status_code == status
    assert not AuditEntry.objects.exists()
    assert not Message.objects.exists()


def test_a_form_of_another_site_fires_nothing(make: Make) -> None:
    make()
    client = ScheduleUser(user("fire")).client
    form = "application/x-www-form-urlencoded"
    headers = {"Origin": "https://evil.example"}
    refused = client.post("/schedule/each-minute/fire", "a=b", form, headers=headers)
    assert refused.status_code == 415
    assert not Message.objects.exists()


def test_lists_are_paged_by_name_and_by_slot(
    caller: ScheduleUser, make: Make, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulljobs.schedules.api.views.PAGE", 2)
    rows = [make(name) for name in ("a", "b", "c")]
    assert walk(caller, "/schedules", "Name") == ["a", "b", "c"]
    other = caller.send("GET", "/schedules?channel=other").json()
    assert other == {"Result": [], "Next": None}
    slots = make_due(rows[0], 5)
    fire_due()
    shown = walk(caller, "/schedule/a/slots", "Slot")
    assert shown[-5:] == [format_slot(slot) for slot in reversed(slots)][-5:]
    assert caller.send("GET", "/schedule/a/slots?before=now").status_code == 400
    assert walk(caller, "/schedule/a/slots?limit=1", "Slot", 1) == shown
    assert caller.send("GET", "/schedule/a/slots?limit=0").json() == {"Result": [], "Next": None}
    assert caller.send("GET", "/schedule/a/slots?limit=-1").status_code == 400


def walk(caller: ScheduleUser, url: str | None, field: str, limit: int = 2) -> list[str]:
    """Return a field of each entry of a list, from all its pages of at most `limit` entries."""
    shown: list[str] = []
    while url is not None:
        page = caller.send("GET", url).json()
        assert len(page["Result"]) <= limit
        shown += [entry[field] for entry in page["Result"]]
        url = page["Next"]
    return shown


def test_an_action_without_a_login_is_in_the_audit_trail_as_anonymous(make: Make) -> None:
    make()
    with override_settings(PULLJOBS={"API_ACCESS": "open"}):
        assert Client().post("/schedule/each-minute/fire").status_code == 200
    assert schedules.slot_of(Message.objects.get()) is not None
    assert AuditEntry.objects.get().by == "anonymous (HTTP)"


def test_a_path_below_a_schedule_that_has_no_route_is_unknown() -> None:
    assert Client().get("/schedule/daily/nothing").status_code == 404
    assert Client().get("/schedules/daily").status_code == 404
