"""What the pages say of what pulljobs stands on."""

import re

from example_project.state import BASE_DIR

PAGES = {
    str(path.relative_to(BASE_DIR)): path.read_text("utf-8")
    for path in (BASE_DIR / "README.md", *(BASE_DIR / "docs").rglob("*.md"))
}


def test_who_installs_psycopg_is_told_where_its_libpq_is_from() -> None:
    """The extra brings psycopg alone, which can't be imported without."""
    telling = {
        name: set(re.findall(r'pip install "pulljobs\[django\]"( "psycopg\[binary\]")?', text))
        for name, text in PAGES.items()
    }
    assert {name: said for name, said in telling.items() if "" in said} == {}
    assert all("libpq" in PAGES[name] for name, said in telling.items() if said)
    assert telling["docs/quickstart.md"]


def test_the_oldest_postgresql_is_told_of_each_django() -> None:
    """Django 6.1 refuses 14."""
    told = [one for text in PAGES.values() for one in re.findall(r"(?s)14 or newer.{1,50}", text)]
    assert len(told) > 3
    assert [one for one in told if "6.1" not in one] == []
