"""An operator at the demo's admin: what is dead is redriven and comes back, what runs is killed."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.pages import NARROW, WIDE, Visitor, is_too_wide, violations
from tests.demo.running import wait_until

DEATHS = "SELECT count(*) FROM pulljobs_archived_job WHERE state = 'DEAD'"
CONSUMERS = "SELECT id FROM pulljobs_consumer ORDER BY name"


def keep(page: Page, name: str, *, whole: bool = False) -> None:
    """In the directory that is named, as the pictures of the docs."""
    if directory := os.environ.get("PULLJOBS_SCREENSHOTS"):
        page.screenshot(path=Path(directory) / f"{name}.png", full_page=whole)


@contextmanager
def running(visitor: Visitor, place: Path) -> Iterator[int]:
    """A job that the demo's worker is at: its file is a pipe that nobody writes to, yet."""
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
        os.close(writing[0])  # The handler ends, and finds its lease lost.


def opened(pipe: Path, writing: list[int]) -> bool:
    """Whether somebody reads it; then he waits for as long as we have it open."""
    with suppress(OSError):
        writing.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    return bool(writing)


def test_dead_jobs_of_a_filter_are_redriven_run_and_come_back(visitor: Visitor) -> None:
    project = visitor.site.project
    page = visitor.open("pulljobs/job/")
    page.get_by_role("link", name="DEAD", exact=True).click()
    expect(page).to_have_url(re.compile("state=DEAD"))
    rows = page.locator("#result_list tbody tr")
    expect(rows.first).to_contain_text("TooLarge")
    dead = rows.count()
    keep(page, "admin-dead-jobs")
    deaths = project.number(DEATHS)

    page.get_by_role("link", name="Redrive all …").click()
    expect(page.locator(".pulljobs-count")).to_have_text(re.compile(rf"^{dead} jobs?$"))
    keep(page, "admin-redrive-all")
    page.get_by_role("button", name=re.compile(f"Redrive {dead} job")).click()
    expect(page.get_by_text("finished", exact=True)).to_be_visible()
    assert violations(page) == []
    keep(page, "admin-audit")

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
    keep(page, "admin-job", whole=True)


def test_a_job_that_runs_is_killed_by_its_button(visitor: Visitor, tmp_path: Path) -> None:
    project = visitor.site.project
    with running(visitor, tmp_path) as job:
        page = visitor.open(f"pulljobs/job/{job}/change/")
        assert page.locator(".pulljobs-buttons button").all_inner_texts() == ["Requeue", "Kill"]
        page.get_by_role("button", name="Kill").click()
        expect(page.get_by_text("DEAD, killed").first).to_be_visible()
        expect(page.locator(".pulljobs-timeline")).to_contain_text("killed by demo")
        keep(page, "admin-killed")
    ends = "SELECT state, reason FROM pulljobs_archived_job WHERE job_id = %s"
    assert project.query(ends, job) == [("DEAD", "killed")]
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Select job to view")).to_be_visible()
    assert not project.query("SELECT FROM pulljobs_job WHERE id = %s", job)


def test_a_consumer_is_paused_and_goes_on(visitor: Visitor) -> None:
    project = visitor.site.project
    [(census,), *_others] = project.query(CONSUMERS)
    paused = "SELECT count(*) FROM pulljobs_consumer WHERE paused_until > now() AND id = %s"
    page = visitor.open(f"pulljobs/consumer/{census}/change/")
    page.get_by_role("link", name="Pause …").click()
    page.get_by_label("until it is resumed").check()
    keep(page, "admin-pause")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("Its jobs are not claimed.")).to_be_visible()
    keep(page, "admin-consumer")
    assert project.number(paused, census) == 1
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("census is resumed.")).to_be_visible()
    assert project.number(paused, census) == 0


PATHS = {
    "jobs": "pulljobs/job/?state=DEAD",
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
    "nodes": "pulljobs/node/",
    "node": "pulljobs/node/{node}/change/",
    "ours": "pulljobs/",
    "channel": "pulljobs/channel/{channel}/change/",
    "without a channel": "pulljobs/channel/{channel}/delete/",
    "new channel": "pulljobs/channel/add/",
    "new producer": "pulljobs/producer/add/",
    "new consumer": "pulljobs/consumer/add/",
    "rollups": "pulljobs_lake/rollup/",
    "rollup runs": "pulljobs_lake/rolluprun/",
}
LOOKS = [("light", WIDE), ("dark", NARROW)]


@pytest.mark.parametrize(("theme", "size"), LOOKS, ids=["light wide", "dark narrow"])
def test_pages_are_for_everybody(theme: str, size: tuple[int, int], visitor: Visitor) -> None:
    """No serious finding of axe-core, and none scrolls sideways, however narrow."""
    found, page = [], None
    for name, path in PATHS.items():
        url = path.format_map(Ids(visitor))
        page = visitor.open(url, theme=theme, size=size) if page is None else page
        page.goto(visitor.site.address + url)
        found += [f"{name}: {one}" for one in violations(page)]
        found += [f"{name} scrolls sideways"] if is_too_wide(page) else []
        if name in {"jobs", "job", "consumers"}:
            keep(page, f"admin-{name}-{theme}-{'narrow' if size == NARROW else 'wide'}")
    assert found == []


class Ids(dict[str, object]):
    """Of rows that the demo made."""

    def __init__(self, visitor: Visitor) -> None:
        project = visitor.site.project
        self["consumer"] = project.number(CONSUMERS)
        self["channel"] = project.number("SELECT id FROM pulljobs_channel")
        [(self["node"],)] = project.query("SELECT id FROM pulljobs_node LIMIT 1")
        self["settled"] = project.number("SELECT max(id) FROM pulljobs_archived_job")
        self["job"] = project.number("SELECT id FROM pulljobs_job WHERE reason IS NOT NULL")


def test_what_others_sent_is_never_run(visitor: Visitor) -> None:
    """HTML is text on the page, is refused to be drawn by itself, and the browser is told so."""
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
