"""Commands that the pages name exist, take those flags, and say what the guide says."""

import configparser
import shlex
from contextlib import nullcontext

import pytest
from django.core.management import call_command

from example_project.state import BASE_DIR
from pulljobs import ids
from tests.docs.commands import check, check_mentioned, commands, mentioned
from tests.factories import ConsumerFactory, published
from tests.guides import blocks, pages, texts

NAMES = [str(page.relative_to(BASE_DIR)) for page in pages()]


@pytest.mark.parametrize("page", NAMES)
def test_commands_of_blocks_are_taken(page: str) -> None:
    for block in blocks(page):
        if block.kind == "console":
            found = list(commands(block.text))
            assert found, f"{page}:{block.line}: no command behind `$ `"
            for words in found:
                check(words)


@pytest.mark.parametrize("page", NAMES)
def test_commands_in_the_text_exist(page: str) -> None:
    """With the subcommands and the flags they are shown with."""
    for words in mentioned((BASE_DIR / page).read_text("utf-8")):
        check_mentioned(words)


@pytest.mark.django_db(transaction=True)
def test_commands_of_diagnosing(capsys: pytest.CaptureFixture[str]) -> None:
    """On a consumer that nobody serves: doctor says so, explain says why, verify is content."""
    consumer = ConsumerFactory.create()
    [job] = published(consumer, 1)
    told = []
    for text in texts("docs/guides/diagnosing.md", "sh"):
        [words] = commands(text.replace("JOB", ids.encode(job)), prompt="")
        with pytest.raises(SystemExit) if words[-1] == "doctor" else nullcontext():
            call_command(*words[2:])
        told.append(capsys.readouterr().out)
    doctor, explain, verify = told
    assert "nobody serves it" in doctor
    assert "nobody" in explain.lower()
    assert verify


def test_the_unit_file_of_workers() -> None:
    """systemd's own reader is not here; its command is one that the worker takes."""
    [text] = texts("docs/guides/workers.md", "ini")
    unit = configparser.ConfigParser()
    unit.optionxform = str  # type: ignore[method-assign, assignment]  # as its documentation has it
    unit.read_string(text)
    service = unit["Service"]
    python, *words = shlex.split(service["ExecStart"])
    assert python.endswith("/bin/python")
    check(["python", *words])
    assert int(service["TimeoutStopSec"]) > int(words[words.index("--graceful-timeout") + 1])
