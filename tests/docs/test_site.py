"""The site of `tox -e docs` has no warning, no dead link and no missing picture."""

import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import sync_playwright

from example_project.state import BASE_DIR
from tests.browser.conftest import FLAGS, STARTING_SECONDS
from tests.guides import DOCS, pages
from tests.requirements import chromium

ONE_SITE = pytest.mark.xdist_group("docs-site")  # built once
WIDTH = "document.documentElement.scrollWidth"
MISSING = "[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"


class Links(HTMLParser):
    """Parser of an HTML page, with the targets of its links and the ids of its elements."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        self.ids |= {values["id"]} if "id" in values else set()
        self.targets += [values[name] for name in ("href", "src") if name in values]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("site")
    command = ["-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    places = ["-d", str(built / "doctrees"), str(DOCS), str(built / "html")]
    done = subprocess.run(
        [sys.executable, *command, *places], cwd=BASE_DIR, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return built / "html"


@ONE_SITE
def test_no_internal_link_is_dead(site: Path) -> None:
    """Each page, anchor, picture, script and style that a page refers to exists."""
    read = {page: Links(page) for page in site.rglob("*.html")}
    assert len(read) > 30
    dead = [
        (page.name, target)
        for page, links in read.items()
        for target in links.targets
        if _is_dead(page, target, read)
    ]
    assert dead == []


@ONE_SITE
def test_generated_parts_are_on_the_built_pages(site: Path) -> None:
    """No placeholder of a generated part is left on the built reference pages."""
    pages = {page.stem: page.read_text("utf-8") for page in (site / "reference").glob("*.html")}
    assert "FLUSH_INTERVAL" in pages["settings"]
    assert pages["statements"].count("<strong>Locks</strong>") > 50
    assert [name for name, text in pages.items() if "{generated}" in text] == []


@ONE_SITE
@pytest.mark.processes
def test_no_page_is_wider_than_a_phone(site: Path) -> None:
    """In a window of 360 pixels no page is wider than the window, and every picture is drawn."""
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=chromium(), args=FLAGS, timeout=STARTING_SECONDS * 1000
        )
        page = browser.new_page(viewport={"width": 360, "height": 780})
        sizes = []
        for shown in sorted(site.rglob("*.html")):
            page.goto(shown.as_uri())
            sizes.append((shown.name, page.evaluate(WIDTH), page.evaluate(MISSING)))
        browser.close()
    assert [page for page in sizes if page[1] > 360 or page[2]] == []


def test_targets_of_the_links_of_the_readme_exist() -> None:
    """Files that README and other pages link to exist, also where Sphinx checks no links."""
    dead = [
        target
        for page in pages()
        for target in _targets(page)
        if not urlsplit(target).scheme and not (page.parent / target.partition("#")[0]).exists()
    ]
    assert [target for target in dead if not target.startswith("#")] == []


def test_external_links_are_well_formed() -> None:
    """External links have a valid form. No test opens them, because tests use no network."""
    links = [(page.name, link) for page in pages() for link in _targets(page) if "//" in link]
    assert [(page, link) for page, link in links if not _is_well_formed(link)] == []


def _is_dead(page: Path, target: str, read: dict[Path, Links]) -> bool:
    url = urlsplit(target)
    if url.scheme or url.netloc:
        return False
    there = (page.parent / unquote(url.path)).resolve() if url.path else page
    if not there.exists():
        return True
    return bool(url.fragment) and there in read and url.fragment not in read[there].ids


def _targets(page: Path) -> Iterator[str]:
    for token in MarkdownIt().enable("table").parse(page.read_text("utf-8")):
        for child in token.children or ():
            target = child.attrGet("href") or child.attrGet("src")
            if target:
                yield str(target)


def _is_well_formed(target: str) -> bool:
    url = urlsplit(target)
    return url.scheme == "https" and "." in (url.hostname or "") and " " not in target
