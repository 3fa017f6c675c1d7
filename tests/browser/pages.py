"""Demo site under test, and the browser that visits it."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Route,
    StorageState,
    expect,
)

from tests.demo.running import Project

DESKTOP: Final = (1440, 900)
PHONE: Final = (390, 844)
WIDE: Final = (1280, 900)
NARROW: Final = (360, 780)
SERIOUS: Final = {"serious", "critical"}
Theme = Literal["light", "dark"]
STRICT: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
FIRST_ROWS: Final = {"exclude": [["#result_list tbody tr:nth-child(n+21)"]]}
"""Context of axe-core: the first rows of a list look like the others, and each takes long."""
PATIENCE_SECONDS: Final = 60
expect.set_options(timeout=PATIENCE_SECONDS * 1000)


@dataclass
class DemoSite:
    """Admin of `manage.py demo --serve` with a running worker, and the login that it printed.

    Tests share the site and its database, which they query by `project`, never by the ORM.
    """

    address: str
    """URL of the admin's index, with the slash at its end."""
    user: str
    password: str
    project: Project
    session: StorageState | None = field(default=None, repr=False)
    """Cookies of the first login, which all later tests use."""


@contextmanager
def temporary_rows(
    project: Project, id: int, inserts: dict[str, int], places: Sequence[str]
) -> Iterator[None]:
    """Insert rows for an id during the block, and delete them at its end.

    `inserts` has statements and how many times each takes the id as a parameter. `places` are the
    tables and columns of rows to delete, such as `pulljobs_run WHERE id`.
    """
    for statement, times in inserts.items():
        project.query(statement, *[id] * times)
    yield
    for place in places:
        project.query(f"DELETE FROM {place} = %s RETURNING 1", id)


@dataclass(frozen=True)
class Visitor:
    """Browser that opens pages of the demo site. The pages close at the end of the test."""

    site: DemoSite
    browser: Browser

    def anonymous(self, **options: Any) -> Page:
        """Return an empty page that is not logged in.

        Options are those of a playwright context.
        """
        return self._context(**options).new_page()

    def open(self, path: str = "", **options: Any) -> Page:
        """Open a path below the admin's index, logged in."""
        page = self.page(**options)
        page.goto(self.site.address + path)
        return page

    def page(self, *, size: tuple[int, int] = WIDE, theme: str = "light", **options: Any) -> Page:
        """Return an empty page that is logged in."""
        if self.site.session is None:
            self.site.session = self._log_in()
        return self._context(
            size=size, color_scheme=theme, storage_state=self.site.session, **options
        ).new_page()

    def _log_in(self) -> StorageState:
        page = self.anonymous()
        page.goto(self.site.address)
        page.get_by_label("Username").fill(self.site.user)
        page.get_by_label("Password").fill(self.site.password)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("button", name="Log out").wait_for()
        return page.context.storage_state()

    def _context(self, *, size: tuple[int, int] = WIDE, **options: Any) -> BrowserContext:
        width, height = size
        made = self.browser.new_context(
            viewport={"width": width, "height": height}, reduced_motion="reduce", **options
        )
        made.set_default_timeout(PATIENCE_SECONDS * 1000)
        return made


@contextmanager
def strict_policy(page: Page) -> Iterator[list[str]]:
    """Serve the page with a strict Content-Security-Policy in the block. Yield its errors."""
    complaints: list[str] = []

    def restrict(route: Route) -> None:
        answer = route.fetch()
        headers = {**answer.headers, "content-security-policy": STRICT}
        route.fulfill(response=answer, headers=headers)

    def collect(message: ConsoleMessage) -> None:
        if message.type == "error":
            complaints.append(message.text)

    page.route("**/admin/**", restrict)
    page.on("console", collect)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield complaints
    page.unroute_all(behavior="wait")  # otherwise a page that closes fails its own refresh


def change_look(page: Page, theme: Theme, size: tuple[int, int]) -> None:
    """Change the theme and size of an open page, and finish its color transitions at once."""
    width, height = size
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": width, "height": height})
    page.evaluate("document.getAnimations().forEach(animation => animation.cancel())")


def violations(page: Page) -> list[str]:
    """Return the serious violations that axe-core reports, each with its rule and elements."""
    # Elements that pass would be listed, too: that takes longer than the checks.
    options = {"resultTypes": ["violations"]}
    reported = Axe().run(page, FIRST_ROWS, options).response["violations"]
    return [
        f"{rule['id']}: {json.dumps([node['target'] for node in rule['nodes']])}"
        for rule in reported
        if rule["impact"] in SERIOUS
    ]


def is_too_wide(page: Page) -> bool:
    """Return True if the page as a whole scrolls sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))
