"""The `PULLJOBS` dict of the Django settings, as one frozen value.

Read when first needed and again after `setting_changed`, so tests can override it. Times are
timedeltas, sizes are bytes. A flag of `runpullworker` bears the name of its setting.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from difflib import get_close_matches
from functools import cache
from typing import Any

from django.conf import settings as django_settings
from django.core.signals import setting_changed
from django.dispatch import receiver

from pulljobs.errors import ConfigurationError

SETTING = "PULLJOBS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    DATABASE: str = "default"
    """The alias of the database that holds the jobs."""

    MAX_PAYLOAD_BYTES: int = 1024 * 1024
    MAX_HEADERS: int = 64
    MAX_HEADER_BYTES: int = 16 * 1024
    MAX_RESULT_BYTES: int = 16 * 1024
    """A handler's result above this is a failure of the handler."""
    MAX_ERROR_CHARS: int = 8_000
    """Error texts are cut in the middle to this length."""

    DEDUPE_WINDOW: timedelta = timedelta(minutes=2)
    """For channels that set none of their own."""
    PROTOCOL_LEASE: timedelta = timedelta(seconds=32.25)
    """Of jobs taken by a job POST, where the consumer sets none: stop timeout + rational delay."""
    MAX_LEASE: timedelta = timedelta(seconds=900)
    """How long a claim can be kept by renewing, unless it was granted longer."""

    RETENTION: timedelta | None = None
    """Age at which partitions of messages and archive may be dropped; None keeps everything."""
    PARTITIONS_AHEAD: int = 7
    """Days for which partitions are made in advance."""

    CONCURRENCY: int = 8
    """Threads that run handlers."""
    FETCH_BATCH: int = 200
    """Jobs of one claim at the most."""
    MAX_HELD: int = 1000
    """Jobs that are claimed and not yet settled, of one process, at the most."""
    MIN_FETCH_INTERVAL: timedelta = timedelta(0)
    """Between a full fetch and the next."""
    MAX_FETCH_INTERVAL: timedelta = timedelta(seconds=1)
    """Between polls that found nothing; a wake-up ends the wait."""
    FLUSH_INTERVAL: timedelta = timedelta(milliseconds=50)
    FLUSH_SIZE: int = 500
    """Outcomes that are written without waiting for the interval."""
    REAP_INTERVAL: timedelta = timedelta(seconds=5)
    MAINTENANCE_INTERVAL: timedelta = timedelta(minutes=10)
    HEARTBEAT_INTERVAL: timedelta = timedelta(seconds=10)
    GRACEFUL_TIMEOUT: timedelta = timedelta(seconds=15)
    """What running handlers get after SIGTERM."""


def load(given: Mapping[str, Any]) -> Settings:
    """Raise ConfigurationError for an unknown key or a value of the wrong type."""
    if not isinstance(given, dict):
        raise ConfigurationError(f"{SETTING} is not a dict.")
    problems = unknown(given) or mistyped(given)
    if problems:
        raise ConfigurationError(" ".join(problems))
    return Settings(**given)


def unknown(given: Mapping[str, Any]) -> list[str]:
    """One sentence for each key that is no setting, naming the nearest that is."""
    known = [field.name for field in fields(Settings)]
    return [
        f"{SETTING}[{key!r}] is no setting; did you mean {nearest[0]!r}?"
        if (nearest := get_close_matches(key.upper(), known, 1, 0.4))
        else f"{SETTING}[{key!r}] is no setting."
        for key in given
        if key not in known
    ]


def mistyped(given: Mapping[str, Any]) -> list[str]:
    """One sentence for each value of the wrong type."""
    types: dict[str, Any] = {field.name: field.type for field in fields(Settings)}
    return [
        f"{SETTING}[{key!r}] must be {_words(types[key])}, not {value!r}."
        for key, value in given.items()
        if isinstance(value, bool) or not isinstance(value, types[key])
    ]


def _words(expected: Any) -> str:
    return expected.__name__ if isinstance(expected, type) else str(expected)


@cache
def settings() -> Settings:
    return load(getattr(django_settings, SETTING, {}))


@receiver(setting_changed)
def _reload(setting: str, **kwargs: Any) -> None:
    if setting == SETTING:
        settings.cache_clear()
