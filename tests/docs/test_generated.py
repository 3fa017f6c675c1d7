"""The parts of the docs that are generated at build have everything that the code has."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest
import yaml

import pulljobs
from example_project.state import BASE_DIR
from pulljobs import conf, errors
from pulljobs.api import DOCUMENT
from pulljobs.client import errors as client_errors
from pulljobs.engine import telemetry
from pulljobs.engine.sql import FRAGMENTS
from pulljobs.lake import telemetry as lake_telemetry
from pulljobs.metrics.families import families_counted, families_read
from pulljobs.schedules import telemetry as schedules_telemetry
from pulljobs.states import TRANSITIONS
from pulljobs.storage.invariants import INVARIANTS
from pulljobs.workflows import telemetry as runs_telemetry
from pulljobs.workflows.batches import telemetry as batches_telemetry
from tests.docs.commands import check, commands
from tests.guides import DOCS, pages

PACKAGE: Final = Path(pulljobs.__file__).parent


@pytest.fixture(scope="module")
def generators() -> Iterator[ModuleType]:
    """Import docs/generators as docs/conf.py does."""
    sys.path.insert(0, str(DOCS))
    yield import_module("generators")
    sys.path.remove(str(DOCS))


@pytest.fixture
def rows(generators: ModuleType, request: pytest.FixtureRequest) -> dict[str, list[str]]:
    """Return the rows of the tables that the test names: the other cells by the first cell."""
    parts = [generators.PARTS[name]() for name in request.param.split()]
    lines = [line for part in parts for line in part.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_every_part_is_on_one_page(generators: ModuleType) -> None:
    named = [name for page in pages() for name in generators.BLOCK.findall(page.read_text("utf-8"))]
    assert sorted(named) == sorted(generators.PARTS)


def test_a_page_is_filled_with_its_parts(generators: ModuleType) -> None:
    text = (DOCS / "reference" / "errors.md").read_text("utf-8")
    filled = generators.fill_page(text)
    assert "{generated}" not in filled
    assert filled.startswith(text.partition("```")[0])
    assert "| `PulljobsError` |" in filled
    assert "| `Unreachable` |" in filled


def test_every_module_is_listed_with_its_purpose(generators: ModuleType) -> None:
    sections = dict(
        section.split("\n", 1) for section in generators.PARTS["modules"]().split("## ")[1:]
    )
    assert {"pulljobs", "pulljobs/worker", "example_project/census"} <= set(sections)
    for folder, text in sections.items():
        rows = re.findall(r"^\| `(\w+\.py)` \| (.+) \|$", text, re.MULTILINE)
        assert all(purpose.endswith(".") for _name, purpose in rows), folder
        if folder.startswith(("pulljobs", "pyspark_pulljobs")):
            modules = {path.name for path in (BASE_DIR / folder).glob("*.py")} - {"__init__.py"}
            assert {name for name, _purpose in rows} == modules, folder


@pytest.mark.parametrize("rows", ["settings"], indirect=True)
def test_every_setting_has_its_type_default_and_meaning(rows: dict[str, list[str]]) -> None:
    assert list(rows) == [field.name for field in fields(conf.Settings)]
    assert [name for name, cells in rows.items() if not all(cells)] == []
    assert rows["FLUSH_INTERVAL"][:2] == ["`timedelta`", "0.05 s"]
    assert rows["MAX_JOBS"][:2] == [r"`int \| None`", "none"]


def test_every_event_of_a_job_has_its_row(generators: ModuleType) -> None:
    table = generators.PARTS["states"]()
    assert re.findall(r"(?m)^\| (\w+) \| [A-Z]", table) == [str(event) for event in TRANSITIONS]


@pytest.mark.parametrize("rows", ["invariants"], indirect=True)
def test_every_invariant_has_its_row(rows: dict[str, list[str]]) -> None:
    assert list(rows) == list(INVARIANTS)


@pytest.mark.parametrize("rows", ["metrics_counted metrics_read"], indirect=True)
def test_every_metric_has_its_meaning(rows: dict[str, list[str]]) -> None:
    assert list(rows) == [family.name for family in (*families_counted(), *families_read())]
    assert [name for name, cells in rows.items() if not cells[-1]] == []


@pytest.mark.parametrize("rows", ["alerts"], indirect=True)
def test_every_alert_has_its_condition(rows: dict[str, list[str]]) -> None:
    rules = yaml.safe_load((PACKAGE / "metrics" / "alerts.yml").read_text("utf-8"))
    names = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    assert list(rows) == names
    assert all(cells[-1].strip("`") for cells in rows.values())


@pytest.mark.parametrize("rows", ["errors client_errors"], indirect=True)
def test_every_error_says_when_it_is_raised(rows: dict[str, list[str]]) -> None:
    expected = {
        name
        for module in (errors, client_errors)
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
    }
    assert set(rows) == expected
    assert [name for name, cells in rows.items() if not cells[1]] == []


@pytest.mark.parametrize("rows", ["events"], indirect=True)
def test_every_telemetry_event_has_its_fields_and_log_level(rows: dict[str, list[str]]) -> None:
    events = {
        name: value
        for module in (
            telemetry,
            lake_telemetry,
            schedules_telemetry,
            runs_telemetry,
            batches_telemetry,
        )
        for name, value in vars(module).items()
        if is_dataclass(value) and value.__module__ == module.__name__
    }
    assert rows.keys() == events.keys()
    for name, (meaning, carries, level) in rows.items():
        assert meaning, name
        assert carries == ", ".join(f"`{field.name}`" for field in fields(events[name]))
        assert set(level.split(" or ")) <= {"debug", "info", "warning", "error"}


def test_every_file_of_sql_has_its_header(generators: ModuleType) -> None:
    part = generators.PARTS["statements"]()
    headers = dict(re.findall(r"(?ms)^### (\w+)\n\n(.*?)(?=^##|\Z)", part))
    files = {path.stem: path.parent.name for path in PACKAGE.rglob("*.sql")}
    assert headers.keys() == files.keys()
    for name, header in headers.items():
        about, *items = header.split("\n- **")
        assert about.strip(), name
        if files[name] != FRAGMENTS:
            assert [item for item in items if item.startswith("Locks")], name


def test_every_verb_has_its_arguments_and_its_examples_are_taken(generators: ModuleType) -> None:
    part = generators.PARTS["commands"]()
    sections = dict(re.findall(r"(?ms)^## ([\w ]+)\n(.*?)(?=^## |\Z)", part))
    assert {"runpullworker", "pulljobs doctor", "pulljobs inspect"} <= sections.keys()
    assert "| `--json` |" not in part
    assert "| `--concurrency CONCURRENCY` |" in sections["runpullworker"]
    for block in re.findall(r"(?ms)^```console\n(.*?)^```$", part):
        for words in commands(block):
            check(words)


def test_every_operation_and_body_of_the_api_has_its_row(generators: ModuleType) -> None:
    part = generators.PARTS["http"]()
    document = json.loads(DOCUMENT.read_text("utf-8"))
    operations = [
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
    ]
    assert sorted(re.findall(r"(?m)^\| `([A-Z]+ /\S+)` \|", part)) == sorted(operations)
    assert set(re.findall(r"(?m)^### (\w+)$", part)) == set(document["components"]["schemas"])


def test_the_public_names_of_python_are_shown_by_signature(generators: ModuleType) -> None:
    for name, (module, names) in generators.code.PUBLIC_API.items():
        part = generators.PARTS[f"python_{name}"]()
        shown = re.findall(r"(?m)^\| `(?:await )?(\w+)\(", part)
        assert shown == names.split()
        assert re.findall(r"(?m)^\| `\w+\(.*` \|  \|$", part) == []
        assert f"| `{module}` |" in part
