"""Commands and flags that the pages name exist, and those of the guide on diagnosing work."""

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
def test_commands_of_blocks_are_accepted(page: str) -> None:
    for block in blocks(page):
        if block.kind == "console":
            lines = list(commands(block.text))
            assert lines, f"{page}:{block.line}: no command behind `$ `"
            for words in lines:
                check(words)


@pytest.mark.parametrize("page", NAMES)
def test_commands_in_the_text_exist(page: str) -> None:
    """Every `manage.py` command, subcommand and flag in the text of a page exists."""
    for words in mentioned((BASE_DIR / page).read_text("utf-8")):
        check_mentioned(words)


@pytest.mark.django_db(transaction=True)
def test_commands_of_the_guide_on_diagnosing_print_what_it_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Doctor and explain report that no process serves the consumer. Verify passes."""
    consumer = ConsumerFactory.create()
    [job] = published(consumer, 1)
    outputs = []
    for text in texts("docs/guides/diagnosing.md", "sh"):
        [words] = commands(text.replace("JOB", ids.encode(job)), prompt="")
        with pytest.raises(SystemExit) if words[-1] == "doctor" else nullcontext():
            call_command(*words[2:])
        outputs.append(capsys.readouterr().out)
    doctor, explain, verify = outputs
    assert "no process serves it" in doctor
    assert "No process serves" in explain
    assert verify


def test_the_unit_file_of_the_guide_on_workers_starts_one() -> None:
    """`runpullworker` accepts the command of the unit, whose syntax `configparser` reads."""
    [text] = texts("docs/guides/workers.md", "ini")
    unit = configparser.ConfigParser()
    unit.optionxform = str  # type: ignore[method-assign, assignment]  # as its documentation has it
    unit.read_string(text)
    service = unit["Service"]
    python, *words = shlex.split(service["ExecStart"])
    assert python.endswith("/bin/python")
    check(["python", *words])
    assert int(service["TimeoutStopSec"]) > int(words[words.index("--graceful-timeout") + 1])
