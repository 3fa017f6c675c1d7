"""System checks name the mistakes in the PULLJOBS setting before anything runs."""

import os
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import connections
from django.test import override_settings
from psycopg import IsolationLevel

from example_project.state import BASE_DIR
from pulljobs.conf import Settings, load, settings
from pulljobs.errors import ConfigurationError
from tests import second


def problems(**given: Any) -> list[str]:
    with override_settings(PULLJOBS=given):
        return [
            f"{problem.id} {problem.msg}"
            for problem in run_checks()
            if str(problem.id).startswith("pulljobs")
        ]


def test_a_timedelta_is_explained_by_an_example() -> None:
    [sentence] = problems(RETENTION=30)
    assert sentence.endswith("must be timedelta or None, such as timedelta(days=30), not 30.")


def test_a_list_is_asked_for_by_its_common_name() -> None:
    [sentence] = problems(ONLY="orders")
    assert sentence == "pulljobs.E003 PULLJOBS['ONLY'] must be a list of str, not 'orders'."


def test_the_defaults_are_sound() -> None:
    assert problems() == []


def test_an_unknown_setting_names_the_nearest() -> None:
    [sentence] = problems(CONCURENCY=4)
    assert (
        sentence
        == "pulljobs.E002 PULLJOBS['CONCURENCY'] is no setting; did you mean 'CONCURRENCY'?"
    )
    with pytest.raises(ConfigurationError, match="did you mean 'MAX_LEASE'"):
        load({"max_lease": timedelta(1)})


@pytest.mark.parametrize("key", ["zzz", 1])
def test_an_unknown_setting_without_a_similar_name_is_reported(key: Any) -> None:
    with override_settings(PULLJOBS={key: 2}):
        [problem] = run_checks()
    assert (problem.id, problem.msg) == ("pulljobs.E002", f"PULLJOBS[{key!r}] is no setting.")


@pytest.mark.parametrize(
    "given",
    [
        {"CONCURRENCY": "8"},
        {"CONCURRENCY": True},
        {"CONCURRENCY": 8.0},
        {"MAX_LEASE": 900},
        {"DATABASE": None},
        {"RETENTION": 5},
        {"REAP_INTERVAL": None},
        {"ONLY": [None]},
        {"GATEWAY_EXEMPT": ["/_status", 1]},
        {"PUSH_ALLOWED_NETWORKS": [10]},
    ],
)
def test_a_value_of_the_wrong_type_is_an_error(given: dict[str, Any]) -> None:
    [sentence] = problems(**given)
    assert sentence.startswith(f"pulljobs.E003 PULLJOBS[{next(iter(given))!r}] must be ")
    with pytest.raises(ConfigurationError, match="must be "):
        load(given)


@pytest.mark.parametrize("given", [[], "x", None])
def test_a_setting_that_is_no_dict_is_an_error(given: Any) -> None:
    with override_settings(PULLJOBS=given):
        ids = [str(problem.id) for problem in run_checks()]
        assert [id for id in ids if id.startswith("pulljobs")] == ["pulljobs.E001"]
        with pytest.raises(ConfigurationError, match="is not a dict"):
            settings()


@pytest.mark.parametrize(
    "given",
    [
        {"CONCURRENCY": 0},
        {"FETCH_BATCH": -1},
        {"MAX_PAYLOAD_BYTES": 0},
        {"REAP_INTERVAL": timedelta(0)},
        {"DEDUPE_WINDOW": timedelta(days=400), "RETENTION": timedelta(days=30)},
        {"MAX_HELD": 4, "CONCURRENCY": 5},
        {"FLUSH_INTERVAL": timedelta(seconds=20), "MAX_LEASE": timedelta(seconds=10)},
        {"FLUSH_INTERVAL": timedelta(seconds=5)},
        {"MIN_FETCH_INTERVAL": timedelta(seconds=2)},
        {"RETENTION": timedelta(minutes=1)},
        {"GRACEFUL_TIMEOUT": timedelta(seconds=-1)},
        {"DEDUPE_WINDOW": timedelta(seconds=-1)},
        {"MAX_HEADERS": -1},
        {"HANDLER_TIMEOUT": timedelta.max},
        {"RETENTION": timedelta(days=36_501)},
        {"HEALTH_PORT": 70_000},
        {"HEALTH_PORT": -1},
        {"WORKER_ID": "w\0"},
        {"WORKER_ID": "w\x1b[31m"},
    ],
)
def test_a_value_that_cannot_work_is_named(given: dict[str, Any]) -> None:
    reported = " ".join(problems(**given))
    assert all(name in reported for name in given), reported


def test_deployment_checks_leave_a_wrong_setting_to_its_own_check() -> None:
    with override_settings(PULLJOBS={"zzz": 1}):
        ids = [str(problem.id) for problem in run_checks(include_deployment_checks=True)]
    assert [id for id in ids if id.startswith("pulljobs")] == ["pulljobs.E002"]


def test_a_database_that_is_not_postgresql_is_an_error() -> None:
    check = subprocess.run(
        [sys.executable, BASE_DIR / "manage.py", "check"],
        env={**os.environ, **second.NOT, "DATABASE_URL": "sqlite://:memory:"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode != 0
    assert "pulljobs needs PostgreSQL, but DATABASES['default'] is sqlite." in check.stderr


def test_a_database_that_is_not_configured_is_an_error() -> None:
    [sentence] = problems(DATABASE="nowhere")
    assert sentence.startswith("pulljobs.E007 PULLJOBS['DATABASE'] names 'nowhere'")


@pytest.mark.parametrize(
    ("level", "ids"),
    [
        (IsolationLevel.READ_COMMITTED, []),
        (IsolationLevel.REPEATABLE_READ, ["pulljobs.E019"]),
        (IsolationLevel.SERIALIZABLE, ["pulljobs.E019"]),
    ],
)
def test_an_isolation_level_under_which_locks_do_not_work_is_an_error(
    level: IsolationLevel, ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    using = Settings().DATABASE  # The alias without any setting.
    options = connections[using].settings_dict["OPTIONS"]
    monkeypatch.setitem(options, "isolation_level", level)
    assert [sentence.split()[0] for sentence in problems()] == ids


@override_settings(USE_TZ=False)
def test_naive_times_are_refused() -> None:
    [sentence] = problems()
    assert sentence.startswith("pulljobs.E022 pulljobs needs USE_TZ")


def test_settings_follow_an_override() -> None:
    with override_settings(PULLJOBS={"FETCH_BATCH": 7}):
        assert settings().FETCH_BATCH == 7
    assert settings().FETCH_BATCH == Settings().FETCH_BATCH


@pytest.mark.parametrize(
    ("given", "id"),
    [
        ({"PUSH_ALLOWED_NETWORKS": ["10.1.2.3/16"]}, "pulljobs.E013"),
        ({"PUSH_ALLOWED_NETWORKS": ["intranet"]}, "pulljobs.E013"),
        ({"ADDRESS": "broker.example.com"}, "pulljobs.E025"),
        ({"PROTOCOL_RETRY_STRATEGY": "often"}, "pulljobs.E034"),
        ({"PROTOCOL_MAX_RETRIES": 99999}, "pulljobs.E034"),
        ({"ADDRESS": "https://broker..example.com/"}, "pulljobs.E025"),
        ({"PUSH_PORTS": [0]}, "pulljobs.E014"),
        ({"PUSH_PORTS": ["https"]}, "pulljobs.E014"),
        ({"PUSH_TOKEN_HEADER": "X-Token: "}, "pulljobs.E015"),
    ],
)
def test_a_setting_of_push_delivery_that_cannot_work_is_an_error(
    given: dict[str, Any], id: str
) -> None:
    [sentence] = problems(**given)
    assert sentence.startswith(id)
