"""Arguments of `pulljobs lake` and what it prints where Spark is not needed."""

import json
from io import StringIO
from pathlib import Path
from typing import Final

import pytest
from django.core.management import CommandError, call_command, execute_from_command_line

from tests.lake.lakes import lake_at
from tests.sessions import contents

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.owner]
MISTAKES: Final = {
    "lake without a verb": ([], "required: VERB"),
    "no property": (["export", "--conf=x"], "is not NAME=VALUE"),
    "days to come are old": (["retain", "--older-than=-8"], "days from 1 to 36500"),
    "today is old": (["retain", "--older-than=0.5"], "days from 1 to 36500"),
    "no age": (["retain", "--older-than=nan"], "days from 1 to 36500"),
    "watch without a pause": (["export", "--watch=-1"], "seconds from 0.1 to 2592000"),
    "watch for ever": (["export", "--watch=inf"], "seconds from 0.1 to 2592000"),
    "no lag": (["export", "--max-lag=nan"], "seconds from 0 to 2592000"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_reported_in_one_line_and_changes_nothing(
    mistake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given, expected = MISTAKES[mistake]
    before = contents()
    with pytest.raises(SystemExit) as ended:
        execute_from_command_line(["manage.py", "pulljobs", "lake", *given])
    assert ended.value.code == 2
    output, error = capsys.readouterr()
    assert output == ""
    assert expected in error
    assert error.count("\n") == 1
    assert contents() == before
    with pytest.raises(CommandError) as raised:
        call_command("pulljobs", "lake", *given)
    assert raised.value.returncode == 2


def test_an_export_of_nothing_prints_one_line_of_json_or_text(tmp_path: Path) -> None:
    with lake_at(tmp_path / "lake"):
        assert json.loads(_printed("--json"))
        text = _printed()
        assert text.strip()
        assert "\x1b" not in text


def _printed(*flags: str) -> str:
    output = StringIO()
    call_command("pulljobs", "lake", "export", *flags, stdout=output)
    return output.getvalue()


def test_the_help_of_pulljobs_lists_lake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call_command("pulljobs", "--help")
    assert "    lake " in capsys.readouterr().out
