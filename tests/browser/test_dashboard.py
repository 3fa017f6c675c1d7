"""The dashboard in a browser, with the demo's data and its running worker.

If `PULLJOBS_SCREENSHOTS` names a directory, the screenshots of the docs are saved there.
"""

import json
import os
import re
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.pages import NARROW, WIDE, Visitor, is_too_wide, strict_policy, violations
from tests.circuits import open_circuit_by_task

DASHBOARD = "pulljobs/dashboard/"
CHARTS = 5
LOOKS = {
    "dashboard-light-wide": (WIDE, "light"),
    "dashboard-dark-wide": (WIDE, "dark"),
    "dashboard-light-narrow": (NARROW, "light"),
    "dashboard-dark-narrow": (NARROW, "dark"),
}


def test_the_dashboard_is_accessible_in_every_look_under_a_strict_csp(visitor: Visitor) -> None:
    """In no theme and width does it violate axe-core rules, scroll sideways or log an error."""
    for name, (size, theme) in LOOKS.items():
        page = visitor.page(size=size, theme=theme)
        with strict_policy(page) as complaints:
            page.goto(visitor.site.address + DASHBOARD)
            _looks_right(page, name)
            assert violations(page) == [], name
            assert not is_too_wide(page), name
            _save_screenshot(page, name)
        assert complaints == [], name
        page.context.close()


def _looks_right(page: Page, name: str) -> None:
    expect(page.get_by_role("heading", name="Dashboard")).to_be_visible()
    # The page leaves out parts that were not read in time, until it refreshes itself.
    expect(page.locator("#pj svg.pj-drawing")).to_have_count(CHARTS)
    drawn = page.locator("#pj-history rect.delivered").first
    assert drawn.evaluate("rect => getComputedStyle(rect).fill") != "rgb(0, 0, 0)", name
    consumers = page.get_by_role("region", name="Consumers now")
    expect(consumers.get_by_role("row", name="python-files / census")).to_be_visible()
    expect(page.get_by_role("heading", name="Workers now")).to_be_visible()
    expect(page.locator("#workers")).to_contain_text("alive")


def _save_screenshot(page: Page, name: str) -> None:
    if directory := os.environ.get("PULLJOBS_SCREENSHOTS"):
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=Path(directory) / f"{name}.png", full_page=True)


def test_the_dashboard_refreshes_until_paused_and_keeps_focus_and_open_tables(
    visitor: Visitor,
) -> None:
    page = visitor.page()
    page.clock.install()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.resource_type))
    page.goto(visitor.site.address + DASHBOARD)
    summary = page.locator("#pj-throughput-table > summary")
    summary.focus()
    page.keyboard.press("Enter")
    before = page.locator("#pj-moment").inner_text()
    _alter(page)

    with page.expect_response(lambda answer: DASHBOARD in answer.url):
        page.clock.run_for(6_000)
    expect(page.locator("#pj-moment")).not_to_have_text("long ago")
    expect(page.locator("#pj-throughput-table")).to_have_attribute("open", "")
    expect(summary).to_be_focused()
    assert before.startswith("As of")

    pause = page.get_by_role("button", name="Pause")
    pause.press("Enter")
    expect(pause).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#pj-announcement")).to_have_text("Automatic refresh is off.")
    count = asked.count("fetch")
    page.clock.run_for(60_000)
    assert asked.count("fetch") == count
    pause.press("Enter")
    with page.expect_response(lambda answer: DASHBOARD in answer.url):
        page.clock.run_for(6_000)


def _alter(page: Page) -> None:
    """Change the open page, so that a refresh can be seen to replace what was changed."""
    page.evaluate(
        """() => {
            for (const id of ["pj-moment", "pj-history"]) {
                document.getElementById(id).dataset.seen = "something else";
            }
            document.getElementById("pj-moment").textContent = "long ago";
        }"""
    )


def test_a_failed_refresh_is_announced_and_tried_again(visitor: Visitor) -> None:
    page = visitor.page(size=NARROW)
    page.clock.install()
    page.goto(visitor.site.address + DASHBOARD)
    page.route(f"**/{DASHBOARD}", lambda route: route.abort())
    page.clock.run_for(6_000)
    announcement = page.locator("#pj-announcement")
    expect(announcement).to_contain_text("could not be refreshed and will retry")
    expect(announcement).not_to_have_class(re.compile("hidden"))  # not only for screen readers
    assert not is_too_wide(page)
    page.unroute(f"**/{DASHBOARD}")
    with page.expect_response(lambda answer: DASHBOARD in answer.url and answer.ok):
        page.clock.run_for(12_000)
    expect(page.locator("#pj.stale")).to_have_count(0)
    expect(announcement).to_have_text("")


def test_the_dashboard_works_without_javascript(visitor: Visitor) -> None:
    page = visitor.open(DASHBOARD, java_script_enabled=False)
    assert page.locator("#pj svg.pj-drawing").count() == CHARTS
    assert page.get_by_role("button", name="Pause").count() == 0
    page.locator("#pj-throughput-table > summary").click()
    expect(page.get_by_role("region", name="Settled by minute")).to_be_visible()
    page.get_by_label("Charts of").select_option(label="python-files / digest")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_label("Charts of").locator("option:checked")).to_have_text(
        "python-files / digest"
    )
    page.get_by_role("link", name="24 hours").click()
    expect(page.get_by_role("link", name="24 hours")).to_have_attribute("aria-current", "page")
    expect(page.get_by_label("Charts of").locator("option:checked")).to_have_text(
        "python-files / digest"
    )


def test_long_names_of_tasks_that_are_held_back_fit_a_narrow_page(visitor: Visitor) -> None:
    query = visitor.site.project.query
    task = f"shop.tasks.{'send_the_monthly_invoice_' * 3}to_customers"
    report = {"circuits": {"python-files/census": open_circuit_by_task(task)}}
    [(node,)] = query(
        "INSERT INTO pulljobs_node (id, kind, name, address, started_at, heartbeat_at, report)"
        " SELECT gen_random_uuid(), kind, 'elsewhere:7', '', now(), now() + '1 hour', %s::jsonb"
        " FROM pulljobs_node LIMIT 1 RETURNING id",
        json.dumps(report),
    )
    try:
        page = visitor.open(DASHBOARD, size=NARROW)
        expect(page.get_by_label("Needs attention").get_by_text(task)).to_be_visible()
        assert not is_too_wide(page)
        assert violations(page) == []
    finally:
        query("DELETE FROM pulljobs_node WHERE id = %s RETURNING id", node)
