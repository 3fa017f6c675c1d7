"""The quickstart, followed word by word in a fresh virtual environment."""

from contextlib import closing
from uuid import uuid4

import pytest

from tests.docs.walking import assert_shows, copied, newcomer, walk
from tests.example.processes import Project, open_directory
from tests.guides import Block, blocks, texts

PAGE = "docs/quickstart.md"
INSTALL = 'python -m pip install -e ".[demo]"'


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.django_db
def test_the_quickstart_word_by_word() -> None:
    """From `python3 -m venv` to the last command; only the database has a name of its own.

    What each block prints is what the page shows under it.
    """
    database = f"shop_{uuid4().hex}"
    steps = [_named(block, database) for block in blocks(PAGE)]
    with open_directory() as home, newcomer(database, home / "bin") as environment:
        checkout = copied(home / "pulljobs")
        with closing(Project(checkout, checkout / ".pulljobs")):
            told = iter(walk(steps, checkout, environment))
    printed = [""]
    for block in steps:
        if block.kind == "sh":
            printed.append(next(told))
        if block.kind == "text":
            assert_shows(block.text, printed[-1])
    [shown] = texts("README.md", "text")
    assert_shows("Dead at census:\n" + shown[shown.index("Census:") :], printed[1])


def test_the_readme_says_the_same() -> None:
    """Its first command is the quickstart's; the second is the one that `.ci/run` reads there."""
    demo, tests = texts("README.md", "sh")
    assert demo.strip() == f"{INSTALL} && python manage.py demo"
    assert INSTALL in texts(PAGE, "sh")[0]
    assert tests.strip() == 'python -m pip install -e ".[dev]" && python -m pytest -n auto'


def _named(block: Block, database: str) -> Block:
    ours = block.text.replace("createdb shop", f"createdb {database}")
    return block._replace(text=ours.replace('"NAME": "shop"', f'"NAME": "{database}"'))
