"""The linter of words finds a planted violation of each rule and none in the repository."""

import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from tests.quality import words
from tests.quality.sources import PythonFile

PLANTED: Final = tomllib.loads(Path(__file__).with_name("planted.toml").read_text("utf-8"))


def planted(example: dict[str, Any]) -> PythonFile:
    return PythonFile(Path(example.get("path", "pulljobs/example.py")), example["code"])


@pytest.mark.parametrize("example", PLANTED["violation"], ids=lambda example: example["rule"])
def test_a_planted_violation_is_reported(example: dict[str, Any]) -> None:
    reported = words.check([planted(example)])
    assert [violation.rule for violation in reported] == [example["rule"]]


@pytest.mark.parametrize("example", PLANTED["clean"], ids=lambda example: example["code"][:20])
def test_code_by_the_rules_is_not_reported(example: dict[str, Any]) -> None:
    assert words.check([planted(example)]) == []


def test_every_rule_has_a_planted_violation() -> None:
    every_rule = {*words.RULES, words.CLASS_NAME, words.PUBLIC_DOCSTRING}
    assert {example["rule"] for example in PLANTED["violation"]} == every_rule


def test_the_line_of_a_violation_is_that_of_the_word() -> None:
    text = '"""Lease of a job.\n\nThe worker,\n`renew\n`, is ' + "to" + 'ld.\n"""'
    [violation] = words.check([PythonFile(Path("pulljobs/example.py"), text)])
    assert violation.line == 5


def test_a_class_name_of_another_package_is_not_taken() -> None:
    code = "class Lease: ..."
    paths = ["benchmarks/lease.py", "pulljobs/lease.py", "pulljobs/client/lease.py"]
    assert words.check([PythonFile(Path(path), code) for path in paths]) == []


def test_the_repository_keeps_the_rules() -> None:
    """No file breaks a rule of words. `python -m tests.quality.words` counts violations."""
    violations = [*words.check(words.read_sources()), *words.prose()]
    assert [str(violation) for violation in violations] == []
