"""An operator looks at a run, redrives it from a step, and sends it a signal."""

from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.browser.pages import (
    DESKTOP,
    PHONE,
    Visitor,
    is_too_wide,
    temporary_rows,
    violations,
)
from tests.browser.test_admin import save_screenshot

RUN: Final = 4_611_686_018_427_387_904
JOB: Final = """
INSERT INTO pulljobs_job
    (id, consumer_id, message_id, available_at, retry_count, deliveries, priority, state, suspect)
SELECT %s, 0, max(id), now() + interval '1 day', 0, 1, 0, 'QUEUED', false FROM pulljobs_message
RETURNING id
"""
"""Statement that inserts a job of no consumer, so that the demo's worker does not take it."""
ROW: Final = """
INSERT INTO pulljobs_run (id, workflow, version, waiting_for, rounds, began_at)
VALUES (%s, 'shop.workflows.fulfil', 3, 'approval', 0, now() - interval '1 hour')
RETURNING id
"""
STEPS: Final = """
INSERT INTO pulljobs_step
    (run_id, name, number, position, kind, function, started_at, ended_at, due_at, result, failure)
SELECT
    %s, name, 1, position, kind, 'shop.workflows.' || name, now() - since * interval '1 min',
    CASE WHEN kind <> 'wait' THEN now() - (since - 2) * interval '1 min' END,
    CASE WHEN kind = 'wait' THEN now() + interval '7 days' END,
    CASE WHEN kind <> 'wait' THEN to_jsonb('result of ' || name) END,
    CASE WHEN name = 'mail' THEN '{"text": "OSError: no route to the mail server"}'::jsonb END
FROM (VALUES ('charge', 1, 'step', 60), ('book', 2, 'atomic', 50), ('mail', 3, 'step', 40),
    ('approval', 4, 'wait', 30)) AS step (name, position, kind, since)
RETURNING run_id
"""
LEFT: Final = (
    "pulljobs_signal WHERE run_id",
    "pulljobs_step WHERE run_id",
    "pulljobs_run WHERE id",
    "pulljobs_job WHERE id",
)
LOOKS: Final = [("light", DESKTOP), ("dark", PHONE)]


@pytest.fixture
def run(visitor: Visitor) -> Iterator[str]:
    """Create a run that waits for a signal. Return the path of its page."""
    with temporary_rows(visitor.site.project, RUN, {JOB: 1, ROW: 1, STEPS: 1}, LEFT):
        yield f"pulljobs_workflows/workflowrun/{RUN}/change/"


@pytest.mark.parametrize(("theme", "size"), LOOKS, ids=["light desktop", "dark phone"])
def test_pages_of_runs_are_accessible_and_fit_the_screen(
    theme: str, size: tuple[int, int], visitor: Visitor, run: str
) -> None:
    page = visitor.open(run, theme=theme, size=size)
    save_screenshot(page, f"admin-run-{theme}-{size[0]}")
    problems = [*violations(page), *(["run scrolls sideways"] if is_too_wide(page) else [])]
    for path in ("", f"{RUN}/signal/", f"{RUN}/redrive/?step=2"):
        page.goto(f"{visitor.site.address}pulljobs_workflows/workflowrun/{path}")
        problems += [f"{path}: {violation}" for violation in violations(page)]
        problems += [f"{path} scrolls sideways"] if is_too_wide(page) else []
    assert problems == []


def test_an_operator_sends_a_signal_and_redrives_from_a_step(visitor: Visitor, run: str) -> None:
    project = visitor.site.project
    page = visitor.open(run)
    expect(page.get_by_text("OSError: no route to the mail server")).to_be_visible()
    page.get_by_role("link", name="Send signal …").click()
    expect(page.get_by_label("Name")).to_have_value("approval")
    page.get_by_label("Payload").fill("{")
    page.get_by_role("button", name="Send a signal").click()
    expect(page.get_by_text("This is not JSON")).to_be_visible()
    page.get_by_label("Payload").fill('{"by": "olga"}')
    page.get_by_role("button", name="Send a signal").click()
    expect(page.get_by_text("The signal was sent.")).to_be_visible()
    assert project.number("SELECT count(*) FROM pulljobs_signal WHERE run_id = %s", RUN) == 1

    page.goto(visitor.site.address + run)
    page.get_by_role("link", name="Redrive from here …").nth(1).click()
    page.get_by_role("button", name="Redrive run").click()
    expect(page.get_by_text("The run goes on.")).to_be_visible()
    assert project.number("SELECT count(*) FROM pulljobs_step WHERE run_id = %s", RUN) == 1
