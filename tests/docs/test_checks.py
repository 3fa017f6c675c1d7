"""The page of the system checks has every id of the code, each of which means one thing."""

import re

from example_project.state import BASE_DIR

PAGE = BASE_DIR / "docs" / "reference" / "checks.md"


def test_the_page_of_checks_has_every_id_once() -> None:
    sources = sorted((BASE_DIR / "pulljobs").rglob("*.py"))
    found = re.findall(
        r'\bid="(pulljobs\.[EWI]\d{3})"', "".join(one.read_text("utf-8") for one in sources)
    )
    told = re.findall(r"^\| `(pulljobs\.[EWI]\d{3})` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(found) > 20
    assert sorted(found) == sorted(told)
