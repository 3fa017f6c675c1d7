"""The page of the system checks has every id of the code, and each id has one meaning."""

import re

from example_project.state import BASE_DIR

PAGE = BASE_DIR / "docs" / "reference" / "checks.md"


def test_the_page_of_checks_has_every_id_once() -> None:
    sources = sorted((BASE_DIR / "pulljobs").rglob("*.py"))
    used = re.findall(
        r'\bid="(pulljobs\.[EWI]\d{3})"', "".join(path.read_text("utf-8") for path in sources)
    )
    documented = re.findall(
        r"^\| `(pulljobs\.[EWI]\d{3})` \|", PAGE.read_text("utf-8"), re.MULTILINE
    )
    assert len(used) > 20
    assert sorted(used) == sorted(documented)
