"""Quickstart, followed literally in a fresh virtual environment."""

import re
from contextlib import closing
from uuid import uuid4

import pytest
from django.core.management.base import BaseCommand

from example_project.state import BASE_DIR
from tests.docs.commands import parser
from tests.docs.walking import assert_shows, copied, newcomer, walk
from tests.example.processes import EmbeddedProject, open_directory
from tests.guides import Block, blocks, texts

PAGE = "docs/quickstart.md"
INSTALL = 'python -m pip install -e ".[demo]"'


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.django_db
def test_the_quickstart_works_literally() -> None:
    """Each block prints what the page shows below it. Only the database has another name."""
    database = f"shop_{uuid4().hex}"
    steps = [_named(block, database) for block in blocks(PAGE)]
    with open_directory() as home, newcomer(database, home / "bin") as environment:
        checkout = copied(home / "pulljobs")
        with closing(EmbeddedProject(checkout, checkout / ".pulljobs")):
            outputs = iter(walk(steps, checkout, environment))
    printed = [""]
    for block in steps:
        if block.kind == "sh":
            printed.append(next(outputs))
        if block.kind == "text":
            assert_shows(block.text, printed[-1])
    [shown] = texts("README.md", "text")
    assert_shows("Dead at census:\n" + shown[shown.index("Census:") :], printed[1])


def test_the_readme_has_the_commands_of_the_quickstart_and_of_ci() -> None:
    """The README has the quickstart's command for the demo and the one by which CI runs tests."""
    demo, tests = texts("README.md", "sh")
    assert demo.strip() == f"{INSTALL} && python manage.py demo"
    assert INSTALL in texts(PAGE, "sh")[0]
    assert tests.strip() == 'python -m pip install -e ".[dev]" && python -m pytest -n auto'


def test_the_page_of_the_example_project_has_every_option_of_the_demo() -> None:
    page = (BASE_DIR / "docs" / "reference" / "example-project.md").read_text("utf-8")
    common = BaseCommand().create_parser("manage.py", "any")._option_string_actions
    documented = set(re.findall(r"(?m)^\| `(--[\w-]+)", page))
    assert documented == parser("demo")._option_string_actions.keys() - common


def _named(block: Block, database: str) -> Block:
    ours = block.text.replace("createdb shop", f"createdb {database}")
    return block._replace(text=ours.replace('"NAME": "shop"', f'"NAME": "{database}"'))
