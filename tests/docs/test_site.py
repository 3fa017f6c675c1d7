"""The site as `tox -e docs` builds it: no warning, no dead link, no picture that is not there."""

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
from tests.requirements import require

ONE_SITE = pytest.mark.xdist_group("docs-site")  # built once
WIDTH = "document.documentElement.scrollWidth"
MISSING = "[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"


class Links(HTMLParser):
    """What a page of the site points to, and the places in it that others may point to."""

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
    """Pages, anchors, pictures, scripts and styles; Sphinx itself looks at those it knows."""
    read = {page: Links(page) for page in site.rglob("*.html")}
    assert len(read) > 30
    found = [
        (page.name, target)
        for page, links in read.items()
        for target in links.targets
        if _is_dead(page, target, read)
    ]
    assert found == []


@ONE_SITE
@pytest.mark.processes
def test_no_page_is_wider_than_a_phone(site: Path) -> None:
    """Tables and code scroll by themselves, and every picture is drawn."""
    with sync_playwright() as started:
        chromium = started.chromium.launch(
            executable_path=require("chromium"), args=FLAGS, timeout=STARTING_SECONDS * 1000
        )
        page = chromium.new_page(viewport={"width": 360, "height": 780})
        found = []
        for shown in sorted(site.rglob("*.html")):
            page.goto(shown.as_uri())
            found.append((shown.name, page.evaluate(WIDTH), page.evaluate(MISSING)))
        chromium.close()
    assert [one for one in found if one[1] > 360 or one[2]] == []


def test_links_of_the_readme_are_there() -> None:
    """GitHub and PyPI show it, and Sphinx never sees it."""
    dead = [
        target
        for page in pages()
        for target in _targets(page)
        if not urlsplit(target).scheme and not (page.parent / target.partition("#")[0]).exists()
    ]
    assert [one for one in dead if not one.startswith("#")] == []


def test_external_links_are_well_formed() -> None:
    """By their looks: nothing here goes to the network."""
    links = [(page.name, one) for page in pages() for one in _targets(page) if "//" in one]
    assert [(page, one) for page, one in links if not _is_well_formed(one)] == []


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
            found = child.attrGet("href") or child.attrGet("src")
            if found:
                yield str(found)


def _is_well_formed(target: str) -> bool:
    url = urlsplit(target)
    return url.scheme == "https" and "." in (url.hostname or "") and " " not in target
