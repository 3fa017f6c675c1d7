"""What `manage.py check` says about a project that uses pulljobs."""

from collections.abc import Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any

from django.apps import AppConfig
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, register
from django.db import connections

from pulljobs.conf import SETTING, Settings, load, mistyped, unknown

MAY_BE_ZERO = {"MIN_FETCH_INTERVAL", "DEDUPE_WINDOW", "MAX_HEADERS", "MAX_HEADER_BYTES"}
ORDERED = (
    ("CONCURRENCY", "MAX_HELD", "some threads would never get a job."),
    ("FLUSH_INTERVAL", "MAX_LEASE", "outcomes would be written after the lease is over."),
    ("MIN_FETCH_INTERVAL", "MAX_FETCH_INTERVAL", "they bound one wait."),
    ("DEDUPE_WINDOW", "RETENTION", "client message ids are forgotten with their messages."),
)


@register
def check_settings(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    given = getattr(django_settings, SETTING, {})
    if not isinstance(given, dict):
        return [Error(f"{SETTING} is not a dict.", id="pulljobs.E001")]
    if problems := unknown(given):
        return [Error(problem, id="pulljobs.E002") for problem in problems]
    if problems := mistyped(given):
        return [Error(problem, id="pulljobs.E003") for problem in problems]
    return [*out_of_order(load(given)), *_wrong_engine(load(given))]


def out_of_order(settings: Settings) -> list[CheckMessage]:
    """What is wrong with values that have the right types; flags are checked by it, too."""
    problems: list[CheckMessage] = [
        Error(f"{SETTING}[{name!r}] must be above 0.", id="pulljobs.E004")
        for name in (field.name for field in fields(Settings))
        if name not in MAY_BE_ZERO and _is_nothing(getattr(settings, name))
    ]
    return problems + [
        Error(
            f"{SETTING}: {low} ({getattr(settings, low)}) must not be above {high} "
            f"({getattr(settings, high)}): {otherwise}",
            id="pulljobs.E005",
        )
        for low, high, otherwise in ORDERED
        if getattr(settings, high) is not None and getattr(settings, low) > getattr(settings, high)
    ]


def _is_nothing(value: Any) -> bool:
    if isinstance(value, timedelta):
        return value <= timedelta()
    return isinstance(value, int) and value <= 0


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
