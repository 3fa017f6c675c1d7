"""The pages name the requirements of pulljobs."""

import re

from example_project.state import BASE_DIR

PAGES = {
    str(path.relative_to(BASE_DIR)): path.read_text("utf-8")
    for path in (BASE_DIR / "README.md", *(BASE_DIR / "docs").rglob("*.md"))
}


def test_pages_that_install_psycopg_name_its_libpq() -> None:
    """Pages that install `pulljobs[django]` also install `psycopg[binary]` and mention libpq."""
    installs = {
        name: set(re.findall(r'pip install "pulljobs\[django\]"( "psycopg\[binary\]")?', text))
        for name, text in PAGES.items()
    }
    assert {name: binaries for name, binaries in installs.items() if "" in binaries} == {}
    assert all("libpq" in PAGES[name] for name, binaries in installs.items() if binaries)
    assert installs["docs/quickstart.md"]


def test_pages_name_the_oldest_postgresql_of_each_django() -> None:
    """A page that allows PostgreSQL 14 also says that Django 6.1 needs a newer one."""
    pattern = r"(?s)14 or newer.{1,50}"
    phrases = [phrase for text in PAGES.values() for phrase in re.findall(pattern, text)]
    assert len(phrases) > 3
    assert [phrase for phrase in phrases if "6.1" not in phrase] == []
