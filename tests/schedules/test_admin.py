"""Schedules in the admin: what the pages show, what they write, and who may do it."""

import html
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connections
from django.test import Client
from django.test.utils import CaptureQueriesContext

from pulljobs import ids, schedules
from pulljobs.models import AuditEntry, Channel, Consumer, Job, Message
from pulljobs.schedules.admin.forms import ScheduleForm
from pulljobs.schedules.firing import fire_due
from pulljobs.schedules.models import Schedule, Slot
from tests.admin.conftest import browser_of
from tests.admin.pages import listing, page, post_form, read_page, rows, trail
from tests.factories import USING, ConsumerFactory
from tests.schedules.conftest import Make, make_due, message_ids, now, reasons, reread
from tests.sessions import query
from tests.storage.test_page_plans import _scanned

pytestmark = pytest.mark.django_db
LIST = "schedules_schedule"
HOUR = timedelta(hours=1)


@pytest.fixture
def operator(db: None) -> Client:
    return browser_of(User.objects.create_superuser("olga"))


@pytest.fixture
def fields(consumer: Consumer) -> dict[str, Any]:
    """Return data for the form that creates a schedule, by the names of its fields."""
    return {
        "name": "report",
        "channel": consumer.channel.name,
        "cron": "0 6 * * 1-5",
        "timezone": "Europe/Berlin",
        "missed": "latest",
        "missed_bound": "100",
        "overlap": "allow",
        "payload": '{"kind": "daily"}',
        "content_type": "application/json",
        "headers": "from: admin",
        "priority": "0",
        "cost": "1",
    }


def user_with(*permissions: str) -> Client:
    user = User.objects.create_user("-".join(permissions), is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return browser_of(user)


def add_page() -> str:
    return listing(LIST) + "add/"


def act_page(row: Schedule, action: str) -> str:
    return page(LIST, row.pk).replace("change", action)


def local(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"


def visible_text(answer: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", answer)).split())


def errors_of(client: Client, url: str, data: dict[str, Any]) -> dict[str, list[str]]:
    """Post a form that must be refused, and return its errors by field."""
    answer = client.post(url, data)
    assert answer.status_code == 200
    errors: dict[str, list[str]] = answer.context["adminform"].form.errors
    assert errors
    return errors


def queries(client: Client, url: str) -> list[str]:
    """Return the statements on tables of schedules, messages and jobs that a page runs."""
    with CaptureQueriesContext(connections[USING]) as captured:
        read_page(client, url)
    return [executed["sql"] for executed in captured if "pulljobs_" in executed["sql"]]


def test_the_list_shows_the_rule_the_next_slot_the_last_outcome_and_the_origin(
    operator: Client, make: Make
) -> None:
    fired = make("fired", timezone="Europe/Berlin")
    make_due(fired, 2)
    fire_due()
    Schedule.objects.filter(pk=fired.pk).update(is_declared=True)
    schedules.pause(make("paused").name)
    paused, first = rows(read_page(operator, listing(LIST)))
    assert re.match(r"fired Every minute \(Europe/Berlin\) \* \* \* \* \* active", first)
    assert "declared in code" in first
    assert re.search(r"in \d+\.?\d* s .* fired, \d", first)
    assert "paused until it is resumed" in paused
    assert "declared" not in paused


def test_filters_and_the_search_narrow_the_list(operator: Client, make: Make) -> None:
    active, paused, refused, ended, code = map(make, ("active", "held", "no", "over", "code"))
    schedules.pause(paused.name)
    rows_of = Schedule.objects.using(USING)
    rows_of.filter(pk=refused.pk).update(failures=2, error="no channel")
    rows_of.filter(pk=ended.pk).update(next_slot=None, due_at=None)
    rows_of.filter(pk=code.pk).update(is_declared=True)

    def names(**query: str) -> set[str]:
        return {row.split()[0] for row in rows(read_page(operator, listing(LIST), **query))}

    assert names(state="active") == {active.name, code.name}
    assert names(state="paused") == {paused.name}
    assert names(state="refused") == {refused.name}
    assert names(state="ended") == {ended.name}
    assert names(origin="code") == {code.name}
    assert names(q="OVE") == {ended.name}
    assert len(names(channel=active.channel_name)) == 5
    assert names(channel="elsewhere") == names(state="unknown") == names(q="%") == set()


def test_a_list_of_50_schedules_needs_as_many_queries_as_one_of_2_and_counts_none(
    operator: Client, make: Make
) -> None:
    for number in range(2):
        make(f"first-{number}")
    read_page(operator, listing(LIST))
    few = queries(operator, listing(LIST))
    for number in range(55):
        make(f"more-{number}")
    many = queries(operator, listing(LIST))
    assert len(rows(read_page(operator, listing(LIST)))) == 50
    assert len(many) == len(few)
    assert not [sql for sql in many if re.search(r"\bCOUNT\(|\bOFFSET\b", sql)]
    assert not [sql for sql in many if '"payload"' in sql]
    older = re.search(r'<a href="(\?[^"]*)">Older', read_page(operator, listing(LIST)))
    assert older
    assert len(rows(read_page(operator, listing(LIST) + html.unescape(older[1])))) == 7


def test_a_page_needs_as_many_queries_with_a_long_history_as_with_none(
    operator: Client, make: Make
) -> None:
    row = make(missed="all")
    read_page(operator, page(LIST, row.pk))
    few = queries(operator, page(LIST, row.pk))
    make_due(row, 50)
    fire_due()
    assert len(queries(operator, page(LIST, row.pk))) == len(few)


@pytest.mark.parametrize(
    ("changes", "field", "advice"),
    [
        ({"cron": "61 6 * * *"}, "cron", "field 1 (minute): '61' can't be used: write 0 to 59"),
        ({"cron": ""}, "cron", "either cron or every"),
        ({"every": "15m"}, "cron", "either cron or every"),
        ({"cron": "", "every": "often"}, "every", "is no duration such as 90, 5m, 12h or 30d"),
        ({"timezone": "Berlin"}, "timezone", "did you mean 'Europe/Berlin'?"),
        ({"jitter": "3d"}, "jitter", "two slots are only"),
        ({"ends_at": "2001-01-01T00:00"}, "ends_at", "Choose a later end"),
        ({"starts_at": "0001-01-01T00:00"}, "starts_at", "Choose a year from 1970"),
        ({"name": "a/b"}, "name", "without slashes"),
        ({"payload": "{"}, "payload", "This is no JSON"),
        ({"payload": '{"limit": NaN}'}, "payload", "This is no JSON: NaN is none"),
        ({"headers": "nonsense"}, "headers", "as name: value"),
        ({"channel": "nowhere"}, "channel", "valid choice"),
        ({"priority": "99999"}, "__all__", "priority"),
    ],
)
def test_a_mistake_is_refused_at_its_field_with_advice(
    operator: Client, fields: dict[str, Any], changes: dict[str, str], field: str, advice: str
) -> None:
    errors = errors_of(operator, add_page(), fields | changes)
    assert advice in " ".join(errors[field])
    assert not Schedule.objects.exists()
    assert not trail()


def test_a_name_that_is_taken_is_refused(
    operator: Client, fields: dict[str, Any], make: Make
) -> None:
    make("report")
    errors = errors_of(operator, add_page(), fields)
    assert errors == {"name": ["There is a schedule of that name already."]}


def test_the_preview_shows_ten_slots_in_both_zones_and_saves_nothing(
    operator: Client, fields: dict[str, Any]
) -> None:
    """The preview marks a slot if the offset of the zone has changed since the slot before it."""
    start = {"starts_at": "2030-03-27T00:00", "cron": "0 6 * * *", "_preview": "1"}
    answer = operator.post(add_page(), fields | start)
    text = visible_text(answer.content.decode())
    assert "The next 10 slots of this rule" in text
    slots = re.findall(r"(\S+ 06:00:00\+0\d:00)( clock changes by \S+)? (\S+Z)", text)
    assert len(slots) == 10
    assert slots[3] == ("2030-03-30 06:00:00+01:00", "", "2030-03-30T05:00:00Z")
    assert slots[4] == (
        "2030-03-31 06:00:00+02:00", " clock changes by +01:00", "2030-03-31T04:00:00Z"
    )  # fmt: skip
    assert 'value="report"' in answer.content.decode()
    assert not Schedule.objects.exists()


def test_a_created_schedule_is_that_of_the_verb_and_audited(
    operator: Client, fields: dict[str, Any]
) -> None:
    [done] = post_form(operator, add_page(), fields | {"jitter": "90s", "misfire_grace": "1h"})
    assert "was added" in done
    row = Schedule.objects.get()
    assert (row.rule.describe(), row.jitter) == (
        "At 06:00 on Monday through Friday (Europe/Berlin)",
        timedelta(seconds=90),
    )
    assert (bytes(row.payload), row.headers) == (b'{"kind": "daily"}', {"from": "admin"})
    assert (row.misfire_grace, row.is_declared) == (HOUR, False)
    assert row.next_slot is not None
    assert trail() == [("olga", "create", "schedule report")]


def test_a_change_gives_the_verb_what_changed_and_nothing_else(
    operator: Client, make: Make, fields: dict[str, Any]
) -> None:
    row = make("report", payload='{"a":\r\n1}', content_type="application/json", headers={"a": "b"})
    own = {"cron": "* * * * *", "timezone": "UTC", "headers": "a: b", "payload": '{"a":\r\n1}'}
    post_form(operator, page(LIST, row.pk), fields | own | {"cron": "", "every": "90m"})
    changed = reread(row)
    assert (changed.cron, changed.every) == ("", timedelta(minutes=90))
    assert bytes(changed.payload) == b'{"a":\r\n1}'
    assert trail() == [("olga", "update", "schedule report: cron, every")]
    text = read_page(operator, page(LIST, row.pk))
    assert 'value="90m"' in text
    started = {"starts_at": re.findall(r'name="starts_at" value="([^"]*)"', text)[0]}
    same = fields | own | started | {"cron": "", "every": "90m"}
    post_form(operator, page(LIST, row.pk), same)
    assert len(trail()) == 1


def test_a_schedule_that_has_ended_can_be_changed_but_its_rule(
    operator: Client, fields: dict[str, Any], make: Make
) -> None:
    row = make("report", ends_at=now() + timedelta(days=1))
    Schedule.objects.filter(pk=row.pk).update(next_slot=None, due_at=None, ends_at=now() - HOUR)
    form = read_page(operator, page(LIST, row.pk))
    own = {"cron": "* * * * *", "timezone": "UTC", "headers": "", "payload": '{"name": "report"}'}
    own["ends_at"] = re.findall(r'name="ends_at" value="([^"]*)"', form)[0]
    post_form(operator, page(LIST, row.pk), fields | own | {"priority": "1"})
    assert reread(row).priority == 1
    errors = errors_of(operator, page(LIST, row.pk), fields | own | {"cron": "5 * * * *"})
    assert "ends_at" in errors


def test_a_declared_schedule_can_be_changed_but_not_renamed(
    operator: Client, fields: dict[str, Any], make: Make
) -> None:
    """The admin ignores a new name for a schedule that code declares, and accepts other changes."""
    row = make("report")
    Schedule.objects.filter(pk=row.pk).update(is_declared=True)
    text = read_page(operator, page(LIST, row.pk))
    assert "Code declares this schedule" in text
    assert re.search(r'name="name"[^>]* disabled', text)
    own = {"name": "other", "cron": "0 7 * * *"}
    post_form(operator, page(LIST, row.pk), fields | own)
    changed = reread(row)
    assert (changed.name, changed.cron, changed.is_declared) == ("report", "0 7 * * *", True)
    post_form(operator, act_page(row, "pause"), {"span": "endless"})
    post_form(operator, act_page(row, "fire"), {})
    assert reread(row).paused_at is not None
    assert reasons(row) == ["now"]


PERMISSIONS = [
    (("view_schedule",), set()),
    (("pause_schedule",), set()),
    (("view_schedule", "pause_schedule"), {"pause", "resume"}),
    (("view_schedule", "fire_schedule"), {"fire", "backfill"}),
    (("change_schedule",), {"pause", "resume", "fire", "backfill", "change"}),
    (("view_schedule", "add_schedule"), {"add"}),
    (("view_schedule", "delete_schedule"), {"delete"}),
]


@pytest.mark.parametrize(("permissions", "allowed"), PERMISSIONS)
def test_each_write_takes_its_permission(
    permissions: tuple[str, ...], allowed: set[str], fields: dict[str, Any], make: Make
) -> None:
    row, client = make("report"), user_with(*permissions)
    written = {
        action: client.post(act_page(row, action), {"span": "1h"}).status_code != 403
        for action in ("pause", "resume", "fire", "backfill")
    }
    written["change"] = client.post(page(LIST, row.pk), fields).status_code != 403
    written["add"] = client.post(add_page(), fields | {"name": "other"}).status_code != 403
    written["delete"] = client.post(act_page(row, "delete"), {"post": "yes"}).status_code != 403
    assert {action for action, is_allowed in written.items() if is_allowed} == allowed


def test_the_payload_and_the_headers_take_the_permission_to_see_payloads(
    fields: dict[str, Any], make: Make
) -> None:
    row = make("report", payload={"a": "s3cr3t"}, headers={"b": "m4sked"})
    for permissions in (["change_schedule"], ["view_schedule"]):
        masked = read_page(user_with(*permissions), page(LIST, row.pk))
        assert "s3cr3t" not in masked
        assert "m4sked" not in masked
        assert "pulljobs.view_message" in masked
        shown = read_page(user_with(*permissions, "view_message"), page(LIST, row.pk))
        assert "s3cr3t" in shown
        assert "m4sked" in shown
    own = {"cron": "5 * * * *", "timezone": "UTC", "payload": "1", "headers": "c: d"}
    post_form(user_with("change_schedule", "view_schedule"), page(LIST, row.pk), fields | own)
    changed = reread(row)
    assert changed.cron == "5 * * * *"
    assert (bytes(changed.payload), changed.headers) == (b'{"a": "s3cr3t"}', {"b": "m4sked"})


def test_a_payload_that_is_no_text_is_kept(
    operator: Client, fields: dict[str, Any], make: Make
) -> None:
    row = make("report", payload=b"\xff\x00")
    assert 'name="payload"' not in read_page(operator, page(LIST, row.pk))
    post_form(operator, page(LIST, row.pk), fields | {"headers": "a: b"})
    assert (bytes(reread(row).payload), reread(row).headers) == (b"\xff\x00", {"a": "b"})


def test_texts_from_outside_are_escaped(operator: Client, make: Make) -> None:
    name, bad = "<b>&quot;", "<script>alert(1)</script>"
    row = make(name, payload=bad, headers={"x": bad}, key=bad)
    make_due(row)
    fire_due()
    Schedule.objects.filter(pk=row.pk).update(failures=1, error=bad, is_declared=True)
    Slot.objects.filter(schedule_id=row.pk).update(error=bad)
    for url in (
        listing(LIST),
        page(LIST, row.pk),
        *(act_page(row, action) for action in ("fire", "pause", "backfill")),
        "/admin/pulljobs/dashboard/",
    ):
        text = read_page(operator, url)
        assert "&lt;b&gt;&amp;quot;" in text, url
        assert bad not in text, url
        assert name not in text, url
    answer = operator.get(page(LIST, row.pk))
    assert "object-src 'none'" in answer["Content-Security-Policy"]


def test_a_header_may_have_any_name(make: Make) -> None:
    row = make("report", payload=b"\xff", content_type="x/y", headers={"items": "3"})
    text = read_page(user_with("view_schedule", "view_message"), page(LIST, row.pk))
    assert "items: 3" in text


def test_the_history_shows_why_each_slot_was_skipped_and_the_jobs_of_the_fired(
    operator: Client, make: Make
) -> None:
    row = make(every=HOUR)
    slots = make_due(row, 25)
    fire_due()
    text = read_page(operator, page(LIST, row.pk))
    [message] = Message.objects.filter(client_message_id__startswith="each-minute:")
    assert f"/admin/pulljobs/job/?q={ids.encode(message.pk)}" in text
    assert visible_text(text).count("skipped it passed while nothing ran") == 19
    assert "fired its time came" in visible_text(text)
    [older] = re.findall(r'href="(\?before=[^"]*)"', text)
    rest = read_page(operator, page(LIST, row.pk) + html.unescape(older))
    assert visible_text(rest).count("skipped it passed while nothing ran") == 5
    assert f"{slots[0]:%Y-%m-%dT%H:%M:%SZ}" in rest
    assert f"{slots[-1]:%Y-%m-%dT%H:%M:%SZ}" not in rest
    assert read_page(operator, page(LIST, row.pk), before="nonsense")


def test_fire_now_fires_once_however_often_the_button_of_a_page_is_pressed(
    operator: Client, make: Make
) -> None:
    row = make()
    selected = {"action": "fire_selected", "_selected_action": [row.pk]}
    for url, form in ((act_page(row, "fire"), {}), (listing(LIST), selected)):
        opened = re.findall(r'name="opened" [^>]*value="([^"]+)"', read_page(operator, url))
        assert "fire" in form.get("action", url)
        before = len(reasons(row))
        answers = [post_form(operator, url, form | {"opened": opened[0]}) for _ in range(2)]
        assert "was not fired again" not in answers[0][0]
        assert "was not fired again" in answers[1][0]
        assert reasons(row) == ["now"] * (before + 1)


def test_fire_now_publishes_one_message_and_reports_a_refusal(operator: Client, make: Make) -> None:
    row = make()
    assert "Its message is published" in read_page(operator, act_page(row, "fire"))
    assert not Job.objects.exists()
    assert post_form(operator, act_page(row, "fire"), {}) == ["Schedule each-minute was fired."], (
        "a name at the begin would be shown with a capital letter"
    )
    assert Job.objects.count() == len(message_ids(row)) == 1
    assert trail() == [("olga", "fire", "schedule each-minute")]
    Schedule.objects.filter(pk=row.pk).update(channel_name="gone")
    [refusal] = post_form(operator, act_page(row, "fire"), {})
    assert "gone" in refusal
    assert len(trail()) == 1


def test_a_pause_has_an_end_or_lasts_until_the_schedule_is_resumed(
    operator: Client, make: Make
) -> None:
    row = make()
    post_form(operator, act_page(row, "pause"), {"span": "endless"})
    assert reread(row).paused_at is not None
    assert reread(row).paused_until is None
    assert "Resume" in read_page(operator, page(LIST, row.pk))
    assert operator.get(act_page(row, "resume")).status_code == 404
    post_form(operator, act_page(row, "resume"), {})
    assert not reread(row).is_paused(now())
    post_form(operator, act_page(row, "pause"), {"span": "1h"})
    until = reread(row).paused_until
    assert until is not None
    assert abs(until - now() - HOUR) < timedelta(minutes=5)
    [refusal] = post_form(
        operator, act_page(row, "pause"), {"span": "1h", "until": local(now() - HOUR)}
    )
    assert "must end in the future" in refusal
    assert [act for _by, act, _subject in trail()] == ["pause", "resume", "pause"]


def test_a_backfill_fires_the_previewed_slots_after_confirmation(
    operator: Client, make: Make
) -> None:
    row = make(every=HOUR, missed="all", missed_bound=3)
    slots = make_due(row, 10)
    fire_due()
    window = {"start": local(slots[0]), "end": local(slots[-1] + timedelta(seconds=1))}
    url = act_page(row, "backfill") + f"?start={window['start']}&end={window['end']}"
    text = read_page(operator, url)
    assert "7 slots to fire" in visible_text(text)
    assert "3 slots of the window fired already" in visible_text(text)
    [token] = re.findall(r'name="preview_token" value="([^"]+)"', text)
    assert len(message_ids(row)) == 3
    [refusal, *_rest] = post_form(operator, url, {"preview_token": "forged"})
    assert "Nothing was fired" in refusal
    assert post_form(operator, url, {"preview_token": token}) == ["Slots that were fired: 7."]
    assert reasons(row) == ["backfill"] * 7 + ["due"] * 3
    [entry] = trail()
    assert entry[:2] == ("olga", "backfill")


def test_a_backfill_is_confirmed_for_one_window_of_one_version(
    operator: Client, make: Make
) -> None:
    row = make()
    start = now() - HOUR
    url = act_page(row, "backfill") + f"?start={local(start)}&end="
    text = read_page(operator, url + local(start + HOUR / 4))
    [token] = re.findall(r'name="preview_token" value="([^"]+)"', text)
    post_form(operator, url + local(start + HOUR / 2), {"preview_token": token})
    assert not Job.objects.exists()
    schedules.update(row.name, payload="other")
    post_form(operator, url + local(start + HOUR / 4), {"preview_token": token})
    assert not Job.objects.exists()


def test_a_backfill_of_more_slots_than_were_shown_is_not_confirmed(
    operator: Client, make: Make
) -> None:
    row = make(every=HOUR)
    slots = make_due(row, 10)
    fire_due()
    schedules.backfill(row.name, slots[0], slots[3])
    window = {"start": local(slots[0]), "end": local(slots[-1])}
    url = act_page(row, "backfill") + f"?start={window['start']}&end={window['end']}"
    text = read_page(operator, url)
    assert "6 slots to fire" in visible_text(text)
    [token] = re.findall(r'name="preview_token" value="([^"]+)"', text)
    query("DELETE FROM pulljobs_slot WHERE slot_at <= %s", [slots[1]])
    [refusal, *_rest] = post_form(operator, url, {"preview_token": token})
    assert "Nothing was fired" in refusal
    assert reasons(row) == ["backfill"] + ["missed"] * 6 + ["due"]


@pytest.mark.parametrize(
    ("start", "end", "advice"),
    [
        ("2026-01-02T00:00", "2026-01-01T00:00", "Choose an end after the start."),
        ("2026-01-01T00:00", "2026-02-01T00:00", "The window has more than 1,000 slots"),
        ("0001-01-01T00:00", "2026-02-01T00:00", "Choose a year from 1970"),
        ("soon", "2026-02-01T00:00", "Enter a valid date/time."),
    ],
)
def test_a_window_that_cannot_be_backfilled_is_refused_with_advice(
    operator: Client, make: Make, start: str, end: str, advice: str
) -> None:
    url = act_page(make(), "backfill")
    text = read_page(operator, url, start=start, end=end)
    assert advice in visible_text(text)
    assert "preview_token" not in text


def test_selected_schedules_are_paused_resumed_and_fired(operator: Client, make: Make) -> None:
    first, second, gone = make("first"), make("second"), make("gone")
    Schedule.objects.filter(pk=gone.pk).update(channel_name="nowhere")

    def act(action: str) -> list[str]:
        chosen = {"action": action, "_selected_action": [first.pk, second.pk, gone.pk]}
        return post_form(operator, listing(LIST), chosen)

    act("pause_selected")
    assert all(reread(row).is_paused(now()) for row in (first, second, gone))
    act("resume_selected")
    assert not any(reread(row).is_paused(now()) for row in (first, second, gone))
    warning, done = act("fire_selected")
    assert warning.startswith("Schedule gone: ")
    assert done == "Done for first, second."
    assert (reasons(first), reasons(second), reasons(gone)) == (["now"], ["now"], [])
    assert [act for _by, act, _subject in trail()] == ["pause"] * 3 + ["resume"] * 3 + ["fire"] * 2


def test_deletions_are_audited_as_deletions_of_no_job(operator: Client, make: Make) -> None:
    first, second, third = make("first"), make("second"), make("third")
    post_form(operator, act_page(first, "delete"), {"post": "yes"})
    chosen = {"action": "delete_selected", "_selected_action": [second.pk, third.pk], "post": "yes"}
    post_form(operator, listing(LIST), chosen)
    assert not Schedule.objects.exists()
    assert set(AuditEntry.objects.values_list("done", flat=True)) == {0}
    assert {subject for _by, act, subject in trail() if act == "delete"} == {
        "schedule first", "schedule second", "schedule third"
    }  # fmt: skip


def test_a_schedule_that_changed_in_between_is_reported_and_not_an_error(
    operator: Client, make: Make, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    Channel.objects.create(name="other")
    row = make("report")
    url = page(LIST, row.pk)
    check = ScheduleForm._check_definition

    def delete_after(form: ScheduleForm) -> None:
        check(form)
        Channel.objects.filter(name="other").delete()

    monkeypatch.setattr(ScheduleForm, "_check_definition", delete_after)
    [refusal] = post_form(operator, url, fields | {"channel": "other"})
    assert "other" in refusal
    assert not trail()


def test_a_form_that_was_opened_before_another_change_does_not_undo_it(
    operator: Client, fields: dict[str, Any], make: Make
) -> None:
    row = make("report", headers={"from": "admin"})
    [seen] = re.findall(r'name="_seen" value="([^"]+)"', read_page(operator, page(LIST, row.pk)))
    own = fields | {"cron": "* * * * *", "timezone": "UTC", "priority": "1"}
    schedules.update("report", cron="0 7 * * *")
    errors = errors_of(operator, page(LIST, row.pk), own | {"_seen": seen})
    assert "This schedule was changed after" in errors["__all__"][0]
    assert (reread(row).cron, reread(row).priority) == ("0 7 * * *", 0)
    again = errors_of(operator, page(LIST, row.pk), own | {"_seen": seen, "_preview": "1"})
    assert "This schedule was changed after" in again["__all__"][0]
    [seen] = re.findall(r'name="_seen" value="([^"]+)"', read_page(operator, page(LIST, row.pk)))
    post_form(operator, page(LIST, row.pk), own | {"_seen": seen, "cron": "0 7 * * *"})
    assert (reread(row).cron, reread(row).priority) == ("0 7 * * *", 1)


def test_the_dashboard_names_schedules_that_are_due_late_or_refused(
    operator: Client, make: Make
) -> None:
    dashboard = "/admin/pulljobs/dashboard/"
    assert 'id="schedules"' not in read_page(operator, dashboard)
    late, refused, skipped = make("late"), make("refused"), make("skipped", missed="skip")
    make_due(skipped, 3)
    fire_due()
    Schedule.objects.filter(pk=late.pk).update(due_at=now() - HOUR)
    Schedule.objects.filter(pk=refused.pk).update(failures=3, error="no channel", due_at=now())
    text = visible_text(read_page(operator, dashboard))
    assert "No process fires the schedule late, which is due." in text
    assert "Schedule refused can't publish: no channel" in text
    assert "(it passed while nothing ran)" in text
    assert "late by 1 h" in text
    assert "without consumers" not in text
    before = len(queries(operator, dashboard))
    for number in range(10):
        make(f"more-{number}")
    assert len(queries(operator, dashboard)) == before


def test_the_dashboard_names_schedules_whose_channel_has_no_consumers(
    operator: Client, make: Make
) -> None:
    dashboard = "/admin/pulljobs/dashboard/"
    make("served")
    empty = Channel.objects.create(name="empty")
    make("alone", channel="empty")
    text = visible_text(read_page(operator, dashboard))
    assert "The schedule alone publishes on a channel without consumers" in text
    deleted = ConsumerFactory.create(channel=empty, deleted_at=now())
    make("forgotten", channel="empty")
    text = visible_text(read_page(operator, dashboard))
    assert "on channels without consumers, so nothing runs: alone, forgotten." in text
    Consumer.objects.filter(pk=deleted.pk).update(deleted_at=None)
    assert "without consumers" not in visible_text(read_page(operator, dashboard))


def test_a_time_zone_that_this_machine_does_not_know_is_a_message_and_can_be_replaced(
    operator: Client, fields: dict[str, Any], make: Make
) -> None:
    row = make("report", starts_at=now() - 10 * HOUR, every=HOUR)
    fixed = make("other")
    for each in (row, fixed):
        make_due(each, 2)
    fire_due()
    Schedule.objects.update(timezone="Mars/Base")
    text = visible_text(read_page(operator, page(LIST, fixed.pk)))
    assert "does not know the time zone 'Mars/Base': update its time zones" in text
    assert "+00:00" in text
    reader = user_with("view_schedule")
    assert "+00:00" in read_page(reader, page(LIST, row.pk))  # An interval needs no zone.
    assert "other" in read_page(operator, listing(LIST))
    window = {"start": local(now() - HOUR), "end": local(now())}
    refused = read_page(operator, act_page(fixed, "backfill"), **window)
    assert "does not know the time zone" in visible_text(refused)
    own = fields | {"name": "other", "cron": "* * * * *", "payload": "1", "timezone": "UTC"}
    post_form(operator, page(LIST, fixed.pk), own)
    assert reread(fixed).timezone == "UTC"


@pytest.mark.owner
def test_the_section_of_the_dashboard_reads_a_bounded_part_of_two_indexes(
    operator: Client, make: Make
) -> None:
    row = make()
    columns = [
        str(field.column) for field in Schedule._meta.fields if field.name not in ("id", "name")
    ]
    copied = ", ".join(columns).replace("due_at", "now() + n * interval '1 s'")
    query(
        f"INSERT INTO pulljobs_schedule (name, {', '.join(columns)})"
        f" SELECT 'copy-' || n, {copied} FROM pulljobs_schedule, generate_series(1, 20000) AS n"
    )
    query(
        "INSERT INTO pulljobs_slot (schedule_id, slot_at, late_seconds, reason)"
        " SELECT %s, now() - n * interval '1 s', 0, 'missed' FROM generate_series(1, 20000) AS n",
        [row.pk],
    )
    query("ANALYZE pulljobs_schedule, pulljobs_slot")
    statements = queries(operator, "/admin/pulljobs/dashboard/")
    own = [sql for sql in statements if re.search(r"pulljobs_(schedule|slot)\b", sql)]
    assert len(own) == 5
    assert [sql for sql in own if _scanned(sql)] == []
