"""Arguments of `pulljobs lake` and what it prints where Spark is not needed."""

import json
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Final

import pytest
from django.core.management import CommandError, call_command, execute_from_command_line

from tests.lake.lakes import lake_at
from tests.sessions import contents

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.owner]
CONSUME: Final = ("consume", "--channel=c", "--consumer=c", "--handler=m:f")
MISTAKES: Final = {
    "lake without a verb": ([], "required: VERB"),
    "no property": (["export", "--conf=x"], "is not NAME=VALUE"),
    "days to come are old": (["retain", "--older-than=-8"], "days from 1 to 36500"),
    "today is old": (["retain", "--older-than=0.5"], "days from 1 to 36500"),
    "no age": (["retain", "--older-than=nan"], "days from 1 to 36500"),
    "watch without a pause": (["export", "--watch=-1"], "seconds from 0.1 to 2592000"),
    "watch for ever": (["export", "--watch=inf"], "seconds from 0.1 to 2592000"),
    "no lag": (["export", "--max-lag=nan"], "seconds from 0 to 2592000"),
    "no size": (["export", "--payload-cap=-5"], "'-5' is no size such as 1024"),
    "no size of PostgreSQL": (["export", "--payload-cap=1e30"], "'1e30' is no size such as 1024"),
    "no day": (["verify", "--day=2026-02-30"], "'2026-02-30' is no day from 2020-01-01 to"),
    "another form of a day": (["restore", "--day=20260228"], "written as YYYY-MM-DD"),
    "a day beyond all ids": (["retain", "--day=2089-09-06"], "to 2089-09-05, written"),
    "no lease": ([*CONSUME, "--lease=0"], "--lease: '0' is no whole number from 1 to 2147483647"),
    "no jobs": ([*CONSUME, "--batch=0"], "--batch: '0' is no whole number from 1 to 2147483647"),
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


def test_a_comparison_of_nothing_calls_nothing_equal(tmp_path: Path) -> None:
    with lake_at(tmp_path / "lake"):
        assert _printed(verb=["verify", "--day=2089-09-05"]).startswith("Nothing was compared")
        assert _printed(verb=["verify"]).startswith("Nothing was compared")


def _printed(*flags: str, verb: Sequence[str] = ("export",)) -> str:
    output = StringIO()
    call_command("pulljobs", "lake", *verb, *flags, stdout=output)
    return output.getvalue()


def test_the_help_of_pulljobs_lists_lake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call_command("pulljobs", "--help")
    assert "    lake " in capsys.readouterr().out
