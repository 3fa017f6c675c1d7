"""An operator makes a schedule in the demo's admin, fires it, pauses it and backfills an hour."""

import json
import re

from playwright.sync_api import Page, expect

from tests.browser.pages import Visitor
from tests.browser.test_admin import save_screenshot

NAME = "recount"
COUNT = "SELECT count(*) FROM pulljobs_schedule WHERE name = %s"
FIRED = (
    "SELECT count(*) FROM pulljobs_slot JOIN pulljobs_schedule ON id = schedule_id"
    " WHERE name = %s AND reason = %s AND pulljobs_slot.message_id IS NOT NULL"
)


def test_a_schedule_is_previewed_created_fired_paused_and_backfilled(visitor: Visitor) -> None:
    project = visitor.site.project
    page = visitor.open("pulljobs_schedules/schedule/add/")
    page.locator("#id_name").fill(NAME)
    page.locator("#id_channel").select_option("python-files")
    page.locator("#id_payload").fill(json.dumps({"path": "manage.py"}))
    page.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_label("Cron rule").fill("61 * * * *")
    page.get_by_role("button", name="Save", exact=True).click()
    error = page.get_by_text("field 1 (minute): '61' can't be used")
    expect(error).to_be_visible()
    error.scroll_into_view_if_needed()
    save_screenshot(page, "admin-schedule-error")
    assert project.number(COUNT, NAME) == 0

    page.get_by_label("Cron rule").fill("*/10 * * * *")
    page.get_by_role("button", name="Show the next slots").click()
    expect(page.get_by_role("heading", name="The next 10 slots of this rule")).to_be_visible()
    expect(page.locator("section[aria-labelledby=preview] tbody tr")).to_have_count(10)
    save_screenshot(page, "admin-schedule-new")
    assert project.number(COUNT, NAME) == 0
    page.get_by_label("Cron rule").press("Enter")  # the first button of the form, to save it
    expect(page.get_by_text("was added successfully")).to_be_visible()
    assert project.number(COUNT, NAME) == 1

    page.locator("#result_list").get_by_role("link", name=NAME).click()
    page.get_by_role("link", name="Fire now …").click()
    save_screenshot(page, "admin-schedule-fire")
    page.get_by_role("button", name="Fire now").click()
    expect(page.get_by_text(f"Schedule {NAME} was fired.")).to_be_visible()
    expect(page.get_by_text("fired by a user")).to_be_visible()
    assert project.number(FIRED, NAME, "now") == 1

    page.get_by_role("link", name="Pause …").click()
    page.get_by_label("until it is resumed").check()
    save_screenshot(page, "admin-schedule-pause")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text(f"Schedule {NAME} is paused.")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text(f"Schedule {NAME} is resumed.")).to_be_visible()

    page.get_by_role("link", name="Backfill …").click()
    page.get_by_role("button", name="Show the slots").click()
    # A worker may have fired the last slot of the hour by itself.
    expect(page.locator(".pulljobs-count")).to_have_text(re.compile("^[56] slots to fire$"))
    save_screenshot(page, "admin-schedule-backfill")
    page.get_by_role("button", name=re.compile(r"Fire \d slots")).click()
    expect(page.get_by_text(re.compile(r"Slots that were fired: \d\."))).to_be_visible()
    assert project.number(FIRED, NAME, "backfill") in {5, 6}
    assert not is_cut_off(page)
    save_screenshot(page, "admin-schedule")


def is_cut_off(page: Page) -> bool:
    """Return True if the table of the next slots has to be scrolled sideways."""
    box = page.locator("section[aria-labelledby=pulljobs-upcoming] .pulljobs-scroll")
    return bool(box.evaluate("box => box.scrollWidth > box.clientWidth"))
