"""An operator looks at a batch and cancels it."""

from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.browser.pages import (
    DESKTOP,
    PHONE,
    Visitor,
    change_look,
    is_too_wide,
    temporary_rows,
    violations,
)
from tests.browser.test_admin import save_screenshot
from tests.demo.running import wait_until

BATCH: Final = 4_611_686_018_427_387_905
ROW: Final = """
INSERT INTO pulljobs_batch
    (id, name, callbacks, members, delivered, dead, redriven, redriven_before, round, created_at,
    closed_at)
VALUES (%s, 'nightly-invoices', '[]', 1, 0, 0, 0, 0, 1, now() - interval '1 hour', now())
RETURNING id
"""
MEMBER: Final = """
INSERT INTO pulljobs_job
    (id, consumer_id, message_id, available_at, retry_count, deliveries, priority, state, suspect,
    batch_id)
SELECT %s, consumer.id, message.id, now() + interval '1 day', 0, 0, 0, 'QUEUED', false, %s
FROM (SELECT id FROM pulljobs_consumer WHERE name = 'digest') AS consumer
CROSS JOIN (
    SELECT id
    FROM pulljobs_message
    WHERE NOT EXISTS (SELECT FROM pulljobs_job WHERE message_id = pulljobs_message.id)
    LIMIT 1
) AS message
RETURNING id
"""
PART: Final = """
INSERT INTO pulljobs_batch_part (batch_id, id, job_ids) VALUES (%s, 1, ARRAY[%s::bigint])
RETURNING id
"""
LEFT: Final = (
    "pulljobs_batch_sum WHERE batch_id",
    "pulljobs_batch_part WHERE batch_id",
    "pulljobs_job WHERE batch_id",
    "pulljobs_archived_job WHERE job_id",
    "pulljobs_batch WHERE id",
)
LOOKS: Final = [("light", DESKTOP), ("dark", PHONE)]


@pytest.fixture
def batch(visitor: Visitor) -> Iterator[str]:
    """Create a closed batch whose only member is due tomorrow. Return the path of its page."""
    with temporary_rows(visitor.site.project, BATCH, {ROW: 1, MEMBER: 2, PART: 2}, LEFT):
        yield f"pulljobs_workflows/batch/{BATCH}/change/"


@pytest.mark.parametrize(("theme", "size"), LOOKS, ids=["light desktop", "dark phone"])
def test_pages_of_batches_are_accessible_and_fit_the_screen(
    theme: str, size: tuple[int, int], visitor: Visitor, batch: str
) -> None:
    page = visitor.open(batch, theme=theme, size=size)
    save_screenshot(page, f"admin-batch-{theme}-{size[0]}")
    problems = [*violations(page), *(["batch scrolls sideways"] if is_too_wide(page) else [])]
    for path in ("batch/", f"batch/{BATCH}/cancel/", "workflowrun/"):
        page.goto(f"{visitor.site.address}pulljobs_workflows/{path}")
        problems += [f"{path}: {violation}" for violation in violations(page)]
        problems += [f"{path} scrolls sideways"] if is_too_wide(page) else []
    page.goto(f"{visitor.site.address}pulljobs/job/{BATCH}/change/")
    problems += violations(page)
    assert problems == []
    page.get_by_role("link", name="nightly-invoices").click()
    expect(page.get_by_role("heading", name="Batch nightly-invoices")).to_be_visible()


def test_a_button_with_a_long_name_fits_the_screen(visitor: Visitor, batch: str) -> None:
    rename = "UPDATE pulljobs_batch SET name = %s WHERE id = %s RETURNING 1"
    visitor.site.project.query(rename, "W" * 200, BATCH)
    page = visitor.open(f"pulljobs_workflows/batch/{BATCH}/cancel/", size=PHONE)
    assert not is_too_wide(page)
    change_look(page, "light", DESKTOP)
    assert not is_too_wide(page)


def test_an_operator_cancels_a_batch(visitor: Visitor, batch: str) -> None:
    project = visitor.site.project
    page = visitor.open(batch)
    page.get_by_role("link", name="Cancel …").click()
    expect(page.get_by_text("Live now: 1.")).to_be_visible()
    page.get_by_role("button", name="Cancel batch nightly-invoices").click()
    expect(page.get_by_text("Cancel: 1 member.")).to_be_visible()
    assert project.query("SELECT state FROM pulljobs_job WHERE id = %s", BATCH) == [("DEAD",)]
    ended = "SELECT count(*) FROM pulljobs_batch WHERE completed_at IS NOT NULL AND id = %s"
    wait_until(lambda: project.number(ended, BATCH) == 1)
    expect(page.get_by_role("link", name="Cancel …")).to_be_hidden()
