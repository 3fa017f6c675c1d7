"""Fixtures for tests in a real Chromium, against the demo's data, its worker and its admin.

`visitor.open("pulljobs/job/", size=NARROW, theme="dark")` opens a page as the logged-in user.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests import requirements
from tests.browser.pages import DemoSite, Visitor
from tests.demo.running import Project, own_database

HERE = Path(__file__).parent
FILES = 100
STARTING_SECONDS = 180
LOGIN = r"(http://\S+) +user (\S+) +password (\S+)"
# Root has no sandbox; /dev/shm is small in containers.
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.processes)
            item.add_marker(pytest.mark.xdist_group("browser"))  # they share a demo


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoSite]:
    """Start the demo once for all tests, because it takes a while."""
    requirements.chromium()
    with ExitStack() as stack:
        url, session = stack.enter_context(own_database())
        project = Project(url, session, history=tmp_path_factory.mktemp("demo") / "history")
        stack.callback(project.end)
        demo = project.demo(f"--limit={FILES}", "--serve", "--no-lake", "--port=0")
        address, user, password = demo.says(LOGIN).groups()
        yield DemoSite(address, user, password, project)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """Start a browser once for all tests of this folder, and for no others.

    Playwright runs an event loop, and while it runs Django refuses to use its ORM.
    """
    with sync_playwright() as started:
        launched = started.chromium.launch(
            executable_path=requirements.chromium(), args=FLAGS, timeout=STARTING_SECONDS * 1000
        )
        yield launched
        launched.close()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """Give the browser to one test, and close the pages of the test at its end."""
    yield chromium
    for context in chromium.contexts:
        context.close()


@pytest.fixture
def visitor(site: DemoSite, browser: Browser) -> Visitor:
    return Visitor(site, browser)
