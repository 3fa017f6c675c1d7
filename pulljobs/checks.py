"""What `manage.py check` says about a project that uses pulljobs."""

from collections.abc import Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any

from django.apps import AppConfig
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, register
from django.db import connections

from pulljobs.conf import SETTING, Settings, load, unknown

POSITIVE = (
    "CONCURRENCY",
    "FETCH_BATCH",
    "MAX_HELD",
    "FLUSH_SIZE",
    "MAX_PAYLOAD_BYTES",
    "MAX_RESULT_BYTES",
    "MAX_ERROR_CHARS",
    "PARTITIONS_AHEAD",
)


@register
def check_settings(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    given = getattr(django_settings, SETTING, {})
    if not isinstance(given, dict):
        return [Error(f"{SETTING} is not a dict.", id="pulljobs.E001")]
    problems = unknown(given)
    if problems:
        return [Error(problem, id="pulljobs.E002") for problem in problems]
    wrong = _mistyped(given)
    if wrong:
        return wrong
    return [*_out_of_order(load(given)), *_wrong_engine(load(given))]


def _mistyped(given: dict[str, Any]) -> list[CheckMessage]:
    expected = {field.name: field.type for field in fields(Settings)}
    return [
        Error(f"{SETTING}[{key!r}] must be {expected[key]}, not {value!r}.", id="pulljobs.E003")
        for key, value in given.items()
        if isinstance(value, bool) or not isinstance(value, expected[key])  # type: ignore[arg-type]  # the annotations are plain types
    ]


def _out_of_order(settings: Settings) -> list[CheckMessage]:
    problems = [
        Error(f"{SETTING}[{name!r}] must be above 0.", id="pulljobs.E004")
        for name in POSITIVE
        if getattr(settings, name) <= 0
    ]
    if settings.MAX_HELD < settings.CONCURRENCY:
        problems.append(
            Error(
                f"{SETTING}: MAX_HELD ({settings.MAX_HELD}) is below CONCURRENCY "
                f"({settings.CONCURRENCY}): some threads would never get a job.",
                id="pulljobs.E005",
            )
        )
    if not timedelta(0) < settings.FLUSH_INTERVAL < settings.MAX_LEASE:
        problems.append(
            Error(
                f"{SETTING}: FLUSH_INTERVAL must be above 0 and below MAX_LEASE.",
                id="pulljobs.E006",
            )
        )
    return list(problems)


def _wrong_engine(settings: Settings) -> list[CheckMessage]:
    if settings.DATABASE not in connections:
        return [
            Error(
                f"{SETTING}['DATABASE'] names {settings.DATABASE!r}, which is not in DATABASES.",
                id="pulljobs.E007",
            )
        ]
    connection = connections[settings.DATABASE]
    if connection.vendor == "postgresql":
        return []
    return [
        Error(
            f"pulljobs needs PostgreSQL, but DATABASES[{settings.DATABASE!r}] is "
            f"{connection.vendor}.",
            hint="Point PULLJOBS['DATABASE'] to a PostgreSQL database.",
            id="pulljobs.E008",
        )
    ]
