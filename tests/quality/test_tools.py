"""Lint, layers, types and migrations pass, so that the test command covers them."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from django.core.management import call_command

from example_project.state import BASE_DIR


@pytest.mark.parametrize(
    "command",
    [
        "ruff check",
        "ruff format --check",
        "lint-imports",
        pytest.param("mypy", marks=[pytest.mark.slow, pytest.mark.types]),
    ],
)
def test_tool_passes(command: str) -> None:
    name, *arguments = command.split()
    program = Path(sys.executable).with_name(name)
    done = subprocess.run([program, *arguments], cwd=BASE_DIR, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.django_db
def test_migrations_are_complete() -> None:
    call_command("makemigrations", check_changes=True, dry_run=True)


def test_the_classifiers_name_the_versions_that_tox_tests() -> None:
    project = tomllib.loads((BASE_DIR / "pyproject.toml").read_text("utf-8"))["project"]
    tox = (BASE_DIR / "tox.ini").read_text("utf-8")
    djangos = set(re.findall(r"Django~=(\d+\.\d+)", tox))
    pythons = {f"3.{minor}" for minor in re.findall(r"py3(\d+)-", tox)}
    classifiers = {tuple(text.rsplit(" :: ", 1)) for text in project["classifiers"]}
    assert {version for kind, version in classifiers if kind == "Framework :: Django"} == djangos
    assert {
        version for kind, version in classifiers if kind == "Programming Language :: Python"
    } == pythons
