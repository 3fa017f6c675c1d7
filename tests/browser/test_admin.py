"""An operator works in the demo's admin: redrives, kills, pauses, and looks at its pages."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, Route, expect

from tests.browser.pages import (
    NARROW,
    WIDE,
    Theme,
    Visitor,
    change_look,
    is_too_wide,
    violations,
)
from tests.demo.running import wait_until

DEATHS = "SELECT count(*) FROM pulljobs_archived_job WHERE state = 'DEAD'"
CENSUS = "SELECT id FROM pulljobs_consumer WHERE name = 'census'"


def save_screenshot(page: Page, name: str, *, whole: bool = False) -> None:
    """Save a screenshot for the docs if PULLJOBS_SCREENSHOTS names a directory."""
    if directory := os.environ.get("PULLJOBS_SCREENSHOTS"):
        page.screenshot(path=Path(directory) / f"{name}.png", full_page=whole)


@contextmanager
def running(visitor: Visitor, place: Path) -> Iterator[int]:
    """Yield the id of a job that the demo's worker runs: it reads a pipe until the block ends."""
    project = visitor.site.project
    pipe = place / "endless.py"
    os.mkfifo(pipe)
    [(message,)] = project.query(
        "INSERT INTO pulljobs_message"
        " (channel_id, published_at, priority, content_type, headers, payload)"
        " SELECT channel_id, now(), 0, 'application/json', '{}', %s"
        " FROM pulljobs_consumer WHERE name = 'digest' RETURNING id",
        json.dumps({"path": str(pipe)}).encode(),
    )
    [(job,)] = project.query(
        "INSERT INTO pulljobs_job"
        " (consumer_id, message_id, available_at, retry_count, deliveries, priority, state)"
        " SELECT id, %s, clock_timestamp(), 0, 0, 0, 'QUEUED'"
        " FROM pulljobs_consumer WHERE name = 'digest' RETURNING id",
        message,
    )
    writing: list[int] = []
    wait_until(lambda: opened(pipe, writing))
    try:
        yield int(job)
    finally:
        os.close(writing[0])  # The handler ends and loses its lease.


def opened(pipe: Path, writing: list[int]) -> bool:
    """Open the pipe, and add its descriptor to `writing`. Return False while no process reads."""
    with suppress(OSError):
        writing.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    return bool(writing)


def test_dead_jobs_of_a_filter_are_redriven_and_fail_again(visitor: Visitor) -> None:
    project = visitor.site.project
    page = visitor.open("pulljobs/job/")
    page.get_by_role("link", name="DEAD", exact=True).click()
    expect(page).to_have_url(re.compile("state=DEAD"))
    rows = page.locator("#result_list tbody tr")
    expect(rows.first).to_contain_text("TooLarge")
    dead = rows.count()
    save_screenshot(page, "admin-dead-jobs")
    deaths = project.number(DEATHS)

    page.get_by_role("link", name="Redrive all …").click()
    expect(page.locator(".pulljobs-count")).to_have_text(re.compile(rf"^{dead} jobs?$"))
    save_screenshot(page, "admin-redrive-all")
    page.get_by_role("button", name=re.compile(f"Redrive {dead} job")).click()
    expect(page.get_by_text("finished", exact=True)).to_be_visible()
    assert violations(page) == []
    save_screenshot(page, "admin-audit")

    wait_until(lambda: project.number(DEATHS) == deaths + dead)
    page = visitor.open("pulljobs/job/?state=DEAD")
    expect(page.locator("#result_list tbody tr")).to_have_count(dead)
    page.locator("#result_list tbody tr a").first.click()
    timeline = page.locator(".pulljobs-timeline")
    for what in ("published", "claimed", "failed, will be retried", "dead", "redrive"):
        expect(timeline.get_by_text(what).first).to_be_visible()
    expect(timeline.get_by_text("TooLarge").first).to_be_visible()
    timeline.locator("summary").first.click()
    expect(timeline.get_by_text("Traceback").first).to_be_visible()
    save_screenshot(page, "admin-job", whole=True)


def test_the_kill_button_ends_a_running_job(visitor: Visitor, tmp_path: Path) -> None:
    project = visitor.site.project
    with running(visitor, tmp_path) as job:
        page = visitor.open(f"pulljobs/job/{job}/change/")
        assert page.locator(".pulljobs-buttons button").all_inner_texts() == ["Requeue", "Kill"]
        page.get_by_role("button", name="Kill").click()
        expect(page.get_by_text("DEAD, killed").first).to_be_visible()
        expect(page.locator(".pulljobs-timeline")).to_contain_text("killed by demo")
        save_screenshot(page, "admin-killed")
    ends = "SELECT state, reason FROM pulljobs_archived_job WHERE job_id = %s"
    assert project.query(ends, job) == [("DEAD", "killed")]
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Select job to view")).to_be_visible()
    assert not project.query("SELECT FROM pulljobs_job WHERE id = %s", job)


def test_a_consumer_is_paused_and_resumed(visitor: Visitor) -> None:
    project = visitor.site.project
    census = project.number(CENSUS)
    paused = "SELECT count(*) FROM pulljobs_consumer WHERE paused_until > now() AND id = %s"
    page = visitor.open(f"pulljobs/consumer/{census}/change/")
    page.get_by_role("link", name="Pause …").click()
    page.get_by_label("until it is resumed").check()
    save_screenshot(page, "admin-pause")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("Its jobs are not claimed.")).to_be_visible()
    save_screenshot(page, "admin-consumer")
    assert project.number(paused, census) == 1
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("Claims of census are resumed.")).to_be_visible()
    assert project.number(paused, census) == 0


PATHS = {
    "jobs": "pulljobs/job/?state=DEAD",
    "all jobs": "pulljobs/job/",
    "jobs with a text": "pulljobs/job/?q=path",
    "jobs without a text": "pulljobs/job/?q=nowhere",
    "job": "pulljobs/job/{job}/change/",
    "redrive": "pulljobs/job/all/redrive/?state=DEAD",
    "reschedule": "pulljobs/job/all/reschedule/?chosen={job}",
    "archive": "pulljobs/archivedjob/",
    "settlement": "pulljobs/archivedjob/{settled}/change/",
    "channels": "pulljobs/channel/",
    "producers": "pulljobs/producer/",
    "consumers": "pulljobs/consumer/",
    "consumer": "pulljobs/consumer/{consumer}/change/",
    "pause": "pulljobs/consumer/{consumer}/pause/",
    "token": "pulljobs/consumer/{consumer}/rotate/",
    "audit": "pulljobs/auditentry/",
    "scheduled": "pulljobs/scheduledmessage/",
    "scheduled message": "pulljobs/scheduledmessage/{scheduled}/change/",
    "clients": "pulljobs/httpclient/",
    "client": "pulljobs/httpclient/{client}/change/",
    "nodes": "pulljobs/node/",
    "node": "pulljobs/node/{node}/change/",
    "ours": "pulljobs/",
    "channel": "pulljobs/channel/{channel}/change/",
    "without a channel": "pulljobs/channel/{channel}/delete/",
    "new channel": "pulljobs/channel/add/",
    "new producer": "pulljobs/producer/add/",
    "new consumer": "pulljobs/consumer/add/",
    "schedules": "pulljobs_schedules/schedule/",
    "new schedule": "pulljobs_schedules/schedule/add/",
    "schedule": "pulljobs_schedules/schedule/{schedule}/change/",
    "declared schedule": "pulljobs_schedules/schedule/{declared}/change/",
    "fire": "pulljobs_schedules/schedule/{schedule}/fire/",
    "schedule's pause": "pulljobs_schedules/schedule/{schedule}/pause/",
    "backfill": "pulljobs_schedules/schedule/{schedule}/backfill/",
    "batches": "pulljobs_workflows/batch/",
    "batch": "pulljobs_workflows/batch/{batch}/change/",
    "batch's redrive": "pulljobs_workflows/batch/{batch}/redrive/",
    "rollups": "pulljobs_lake/rollup/",
    "rollup runs": "pulljobs_lake/rolluprun/",
    "app of schedules": "pulljobs_schedules/",
    "app of workflows": "pulljobs_workflows/",
    "app of the lake": "pulljobs_lake/",
}
CLIENT = """
INSERT INTO pulljobs_http_client (consumer_id, name, host, address, agent, first_seen_at, seen_at)
VALUES (
    %s, '8c1f0f6f3c7b4a5e9d2c', 'shop-3', '10.0.0.9', 'pulljobs/0.1.0 python/3.12', now(), now()
)
ON CONFLICT (consumer_id, name) DO UPDATE SET seen_at = now()
RETURNING id
"""
SCHEDULED = """
INSERT INTO pulljobs_scheduled_message
    (channel_id, client_message_id, priority, key, content_type, headers, payload, dispatch_at)
VALUES (
    %s, 'report-7', 0, 'month', 'application/json', '{}', '{"month": 7}', now() + interval '3 h'
)
ON CONFLICT (channel_id, client_message_id) DO UPDATE SET priority = 0
RETURNING id
"""
SCHEDULE = """
INSERT INTO pulljobs_schedule (
    name, channel_name, cron, timezone, jitter, payload, content_type, headers, priority, missed,
    missed_bound, overlap, is_declared, rule_since, next_slot, last_slot, last_reason,
    last_late_seconds, failures, error, cost
)
VALUES (
    %s, 'gone', '0 6 * * 1-5', 'Europe/Berlin', interval '0', '{"report": 7}', 'application/json',
    '{}', 0, 'latest', 100, 'allow', %s, now(), now() + interval '3 h', now(), 'paused', 3, 0, '', 1
)
ON CONFLICT (name) DO UPDATE SET priority = 0
RETURNING id
"""
SLOTS = """
INSERT INTO pulljobs_slot (schedule_id, slot_at, late_seconds, message_id, reason)
VALUES
    (%s, '2026-01-02T05:00Z', 1, 1234567, 'due'),
    (%s, '2026-01-05T05:00Z', 3, NULL, 'paused')
ON CONFLICT (schedule_id, slot_at) DO UPDATE SET late_seconds = 1
RETURNING schedule_id
"""
BATCH = """
INSERT INTO pulljobs_batch (
    id, name, callbacks, members, delivered, dead, redriven, redriven_before, round, created_at,
    closed_at
)
VALUES (
    %s, 'recount of all files', '[]', 1240, 861, 17, 2, 0, 1, now() - interval '3 minutes', now()
)
ON CONFLICT (id) DO UPDATE SET round = 1
RETURNING id
"""
LOOKS: Final[list[tuple[Theme, tuple[int, int]]]] = [("light", WIDE), ("dark", NARROW)]


def test_pages_are_accessible_and_fit_the_screen(visitor: Visitor) -> None:
    """No page scrolls sideways or violates axe-core seriously: light and wide, dark and narrow."""
    problems, page, ids = [], visitor.page(), Ids(visitor)
    for name, path in PATHS.items():
        page.goto(visitor.site.address + path.format_map(ids))
        for theme, size in LOOKS:
            look = f"{theme}-{'narrow' if size == NARROW else 'wide'}"
            change_look(page, theme, size)
            problems += [f"{name}, {look}: {violation}" for violation in violations(page)]
            problems += [f"{name}, {look} scrolls sideways"] if is_too_wide(page) else []
            if name in {"jobs", "job", "consumers", "batch"}:
                save_screenshot(page, f"admin-{name}-{look}")
    assert problems == []


class Ids(dict[str, object]):
    """Ids to fill into the paths of `PATHS`, of rows that exist or are created."""

    def __init__(self, visitor: Visitor) -> None:
        project = visitor.site.project
        self["consumer"] = project.number(CENSUS)
        self["channel"] = project.number("SELECT id FROM pulljobs_channel")
        [(self["node"],)] = project.query("SELECT id FROM pulljobs_node LIMIT 1")
        self["settled"] = project.number("SELECT max(id) FROM pulljobs_archived_job")
        self["job"] = project.number("SELECT id FROM pulljobs_job WHERE reason IS NOT NULL")
        [(self["client"],)] = project.query(CLIENT, self["consumer"])
        [(self["scheduled"],)] = project.query(SCHEDULED, self["channel"])
        [(self["batch"],)] = project.query(BATCH, 7 << 50)
        project.query("UPDATE pulljobs_job SET batch_id = %s RETURNING id", self["batch"])
        for name, is_declared in (("schedule", False), ("declared", True)):
            [(self[name],)] = project.query(SCHEDULE, f"{name}-weekdays", is_declared)
            project.query(SLOTS, self[name], self[name])


ENTRY = """
INSERT INTO pulljobs_audit_entry (by, act, subject, finished_at)
VALUES ('olga', 'kill', 'all that waits', now())
RETURNING id
"""


def test_the_page_of_a_running_action_reloads_itself_and_keeps_the_focus(visitor: Visitor) -> None:
    """Reloads keep the focus, so that users of the keyboard reach the button to stop the action."""
    page, entry = visitor.page(), visitor.site.project.number(ENTRY)

    def show_as_running(route: Route) -> None:
        answer = route.fetch()
        mark = '<div data-pulljobs-refresh="0.2"></div></form>'
        route.fulfill(response=answer, body=answer.text().replace("</form>", mark))

    page.route("**/auditentry/**", show_as_running)
    page.goto(f"{visitor.site.address}pulljobs/auditentry/{entry}/change/")
    for _ in range(2):
        with page.expect_navigation():
            page.get_by_role("link", name="Close").focus()
        expect(page.get_by_role("link", name="Close")).to_be_focused()
    page.unroute_all(behavior="wait")


def test_the_browser_never_runs_a_payload(visitor: Visitor) -> None:
    """The page shows HTML as text, and the download of the payload has headers against it."""
    project = visitor.site.project
    [(settled, message)] = project.query(
        "SELECT id, message_id FROM pulljobs_archived_job WHERE state = 'DELIVERED' LIMIT 1"
    )
    payload = b"<script>document.title = 'taken over'</script><svg onload='alert(1)'>"
    project.query(
        "UPDATE pulljobs_message SET payload = %s, content_type = 'image/svg+xml'"
        " WHERE id = %s RETURNING id",
        payload,
        message,
    )
    page = visitor.open(f"pulljobs/archivedjob/{settled}/change/")
    expect(page.locator("pre[aria-label=Payload]")).to_contain_text("taken over")
    assert "taken over" not in page.title()
    answer = page.request.get(f"{visitor.site.address}pulljobs/job/payload/{message}/")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
