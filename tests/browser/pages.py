"""A live site and the Chromium that looks at it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Route, StorageState, expect

from tests.demo.running import Project

WIDE: Final = (1280, 900)
NARROW: Final = (360, 780)
SERIOUS: Final = {"serious", "critical"}
STRICT: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PATIENCE_SECONDS: Final = 60
expect.set_options(timeout=PATIENCE_SECONDS * 1000)


@dataclass
class Site:
    """The admin of `manage.py demo --serve`, its worker at work, and the login it printed.

    Tests share it, and the database behind it: ask `project` for what is there, not the ORM.
    """

    address: str
    """Of the admin's index, with the slash at its end."""
    user: str
    password: str
    project: Project
    session: StorageState | None = field(default=None, repr=False)
    """Of who logged in, so that only the first test has to."""


@dataclass(frozen=True)
class Visitor:
    """Opens pages of the site in a Chromium of the test's own; all close with it."""

    site: Site
    browser: Browser

    def anonymous(self, **options: Any) -> Page:
        """At the door; options are those of a context of playwright's."""
        return self._context(**options).new_page()

    def open(self, path: str = "", **options: Any) -> Page:
        """The page below the admin's index, logged in."""
        page = self.page(**options)
        page.goto(self.site.address + path)
        return page

    def page(self, *, size: tuple[int, int] = WIDE, theme: str = "light", **options: Any) -> Page:
        """Of who is logged in, still empty."""
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
def policed(page: Page) -> Iterator[list[str]]:
    """A strict Content-Security-Policy holds meanwhile; what the browser complains of."""
    complaints: list[str] = []

    def restrict(route: Route) -> None:
        answer = route.fetch()
        headers = {**answer.headers, "content-security-policy": STRICT}
        route.fulfill(response=answer, headers=headers)

    page.route("**/admin/**", restrict)
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield complaints
    page.unroute_all(behavior="wait")  # or a page that closes fails its own refresh


def violations(page: Page) -> list[str]:
    """What axe-core finds that is serious or worse: the rule and where."""
    found = Axe().run(page).response["violations"]
    return [
        f"{rule['id']}: {json.dumps([node['target'] for node in rule['nodes']])}"
        for rule in found
        if rule["impact"] in SERIOUS
    ]


def is_too_wide(page: Page) -> bool:
    """Whether the page as a whole scrolls sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))
