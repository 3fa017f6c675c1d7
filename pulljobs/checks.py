"""System checks of the settings of pulljobs, and of the settings of Django that it needs."""

import base64
import ipaddress
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import timedelta
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.db import connections
from django.utils.module_loading import import_string
from psycopg import IsolationLevel

from pulljobs import backoff, encryption, hooks
from pulljobs.conf import (
    OF_DRF,
    SCOPES,
    SETTING,
    WORKER_CHECKS,
    Access,
    Settings,
    load,
    mistyped,
    unknown,
)
from pulljobs.engine.addresses import is_absolute
from pulljobs.errors import LONGEST_DELAY

MOST_RETRIES = 32_767
MAY_BE_ZERO = {
    "MIN_FETCH_INTERVAL",
    "DEDUPE_WINDOW",
    "MIN_SCHEDULE_DELAY",
    "PROTOCOL_MAX_RETRIES",
    "MAX_HEADERS",
    "MAX_HEADER_BYTES",
    "BACKOFF_INITIAL",
    "BACKOFF_MAX",
    "HEALTH_PORT",
}
AUTHTOKEN = "rest_framework.authtoken"
HIGHEST_PORT = 65535
HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
RATE = re.compile(r"[1-9][0-9]{0,8}/(s|sec|second|m|min|minute|h|hour|d|day)")
ORDERED = (
    ("CONCURRENCY", "MAX_HELD", "some threads would never get a job."),
    ("FLUSH_INTERVAL", "MAX_LEASE", "outcomes would be written after the lease has ended."),
    ("MIN_FETCH_INTERVAL", "MAX_FETCH_INTERVAL", "they bound the same wait."),
    ("DEDUPE_WINDOW", "RETENTION", "client message ids are deleted with their messages."),
)
LONGEST_FLUSH_INTERVAL = timedelta(seconds=1)
"""Longest flush interval: a crash runs the jobs again whose outcomes wait to be written."""


@register(WORKER_CHECKS)
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
    return [
        *out_of_order(load(given)),
        *_wrong_engine(load(given)),
        *_wrong_access(load(given)),
        *_wrong_push(load(given)),
        *_wrong_address(load(given)),
        *_wrong_retries(load(given)),
        *_missing_extra(load(given)),
        *_lake_not_installed(load(given)),
        *_wrong_replica(load(given)),
        *_naive_times(),
    ]


def out_of_order(settings: Settings) -> list[CheckMessage]:
    """Report settings whose values are too low, too high, or contradict each other.

    All values must have the right types. `runpullworker` checks its flags by this function, too.
    """
    values = {field.name: getattr(settings, field.name) for field in fields(Settings)}
    problems: list[CheckMessage] = [
        Error(f"{SETTING}[{name!r}] must {_least(name)}.", id="pulljobs.E004")
        for name, value in values.items()
        if _is_too_low(name, value)
    ]
    problems += [
        Error(f"{SETTING}[{name!r}] must be at most 100 years, not {value}.", id="pulljobs.E021")
        for name, value in values.items()
        if isinstance(value, timedelta) and value > LONGEST_DELAY
    ]
    problems += [
        Error(
            f"{SETTING}: {low} ({getattr(settings, low)}) must not be above {high} "
            f"({getattr(settings, high)}): {otherwise}",
            id="pulljobs.E005",
        )
        for low, high, otherwise in ORDERED
        if getattr(settings, high) is not None and getattr(settings, low) > getattr(settings, high)
    ]
    if settings.FLUSH_INTERVAL > LONGEST_FLUSH_INTERVAL:
        problems.append(_late_flushes(settings))
    if (settings.HEALTH_PORT or 0) > HIGHEST_PORT:
        problems.append(
            Error(
                f"{SETTING}['HEALTH_PORT']: {settings.HEALTH_PORT} is no port.", id="pulljobs.E024"
            )
        )
    return problems + _wrong_worker_id(settings.WORKER_ID)


def _wrong_worker_id(name: str) -> list[CheckMessage]:
    """Report a WORKER_ID that the database can't store, or that a log or a terminal can't show."""
    if name.isprintable():
        return []
    problem = f"{SETTING}['WORKER_ID']: {name!r} is not printable text."
    return [Error(problem, hint="Use plain text.", id="pulljobs.E028")]


def _lake_not_installed(settings: Settings) -> list[CheckMessage]:
    """Report a lake whose app is not installed: history would be dropped without its export."""
    if not settings.LAKE or apps.is_installed("pulljobs.lake"):
        return []
    return [
        Error(
            f"{SETTING}['LAKE'] is set, but 'pulljobs.lake' is not in INSTALLED_APPS.",
            hint="Add 'pulljobs.lake' to it and migrate, or remove the setting.",
            id="pulljobs.E026",
        )
    ]


def _wrong_replica(settings: Settings) -> list[CheckMessage]:
    """Report an alias of the lake's replica that is not usable.

    The export itself checks that the server is a standby.
    """
    if not (alias := settings.LAKE_REPLICA):
        return []
    where = f"{SETTING}['LAKE_REPLICA']"
    known = connections.settings
    if alias not in known or alias == settings.DATABASE:
        problem = f"{where} must name another entry of DATABASES, not {alias!r}."
    elif known[alias].get("PASSWORD") != known[settings.DATABASE].get("PASSWORD"):
        problem = f"{where}: {alias!r} must have the password of {settings.DATABASE!r}."
    else:
        return []
    hint = "Name an alias with the host of a standby server and the same role and password."
    return [Error(problem, hint=hint, id="pulljobs.E027")]


def _late_flushes(settings: Settings) -> CheckMessage:
    return Error(
        f"{SETTING}: FLUSH_INTERVAL ({settings.FLUSH_INTERVAL}) must not be above "
        f"{LONGEST_FLUSH_INTERVAL}: a crash runs the jobs again whose outcomes wait in memory.",
        hint="FLUSH_SIZE outcomes are written without waiting for it.",
        id="pulljobs.E020",
    )


def _least(name: str) -> str:
    return "not be negative" if name in MAY_BE_ZERO else "be above 0"


def _is_too_low(name: str, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, timedelta | int):
        return False
    nothing: Any = type(value)()
    return bool(value < nothing or (value == nothing and name not in MAY_BE_ZERO))


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
        return _wrong_isolation(settings.DATABASE)
    return [
        Error(
            f"pulljobs needs PostgreSQL, but DATABASES[{settings.DATABASE!r}] is "
            f"{connection.vendor}.",
            hint="Point PULLJOBS['DATABASE'] to a PostgreSQL database.",
            id="pulljobs.E008",
        )
    ]


def _wrong_isolation(using: str) -> list[CheckMessage]:
    level = connections[using].settings_dict["OPTIONS"].get("isolation_level")
    if level in (None, IsolationLevel.READ_COMMITTED):
        return []
    return [
        Error(
            f"DATABASES[{using!r}] must have the isolation level READ COMMITTED, the default: "
            "at other levels a transaction does not see what was committed while it waited for a "
            "lock, so two jobs of an exclusive key could run at once.",
            hint="Remove 'isolation_level' from its OPTIONS, or use a separate alias for jobs.",
            id="pulljobs.E019",
        )
    ]


def _wrong_access(settings: Settings) -> Iterator[CheckMessage]:
    """Report wrong settings of the HTTP API, which is not imported: its packages may be missing."""
    if settings.API_ACCESS not in list(Access):
        words = ", ".join(Access)
        yield Error(f"{SETTING}['API_ACCESS'] must be one of: {words}.", id="pulljobs.E009")
    scopes = SCOPES | hooks.api_scopes
    for scope in settings.THROTTLES.keys() - scopes:
        nearest = "".join(get_close_matches(str(scope), scopes, 1, 0))
        yield Error(
            f"{SETTING}['THROTTLES'][{scope!r}] is no route; did you mean {nearest!r}?",
            id="pulljobs.E006",
        )
    for scope, rate in settings.THROTTLES.items():
        if not (isinstance(rate, str) and RATE.fullmatch(rate)):
            yield Error(
                f"{SETTING}['THROTTLES'][{scope!r}] must be a rate such as '100/s', not {rate!r}.",
                id="pulljobs.E010",
            )
    if settings.GATEWAY_SECRETS and not all(map(_is_base64, settings.GATEWAY_SECRETS)):
        yield Error(f"{SETTING}['GATEWAY_SECRETS'] must be text in base64.", id="pulljobs.E011")
    if list(settings.API_AUTHENTICATION) != list(OF_DRF):
        yield from _no_authtoken(settings)
        yield from _no_authentication(settings)
    yield from _wrong_keys(settings)


def _wrong_push(settings: Settings) -> Iterator[CheckMessage]:
    for network in settings.PUSH_ALLOWED_NETWORKS:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            yield Error(
                f"{SETTING}['PUSH_ALLOWED_NETWORKS']: {error}.",
                hint="Write networks such as '10.1.0.0/16', or '10.1.2.3/32' for one address.",
                id="pulljobs.E013",
            )
    for port in settings.PUSH_PORTS:
        if type(port) is not int or not 0 < port <= HIGHEST_PORT:
            yield Error(f"{SETTING}['PUSH_PORTS']: {port!r} is no port.", id="pulljobs.E014")
    if not HEADER.fullmatch(settings.PUSH_TOKEN_HEADER):
        name = settings.PUSH_TOKEN_HEADER
        yield Error(
            f"{SETTING}['PUSH_TOKEN_HEADER']: {name!r} is no name of a header.", id="pulljobs.E015"
        )


def _wrong_address(settings: Settings) -> Iterator[CheckMessage]:
    if settings.ADDRESS and not is_absolute(settings.ADDRESS):
        yield Error(
            f"{SETTING}['ADDRESS']: {settings.ADDRESS!r} is no URL, so clients can't use it.",
            hint="Write the whole URL, such as https://broker.example.com/.",
            id="pulljobs.E025",
        )


def _wrong_retries(settings: Settings) -> Iterator[CheckMessage]:
    """Report retry settings with which every PUT of a new consumer over HTTP would fail."""
    problems = []
    if (settings.PROTOCOL_MAX_RETRIES or 0) > MOST_RETRIES:
        problems.append(f"PROTOCOL_MAX_RETRIES must be at most {MOST_RETRIES}.")
    try:
        backoff.expand(settings.PROTOCOL_RETRY_STRATEGY or backoff.NEVER)
    except ValueError as error:
        problems.append(f"PROTOCOL_RETRY_STRATEGY: {error}")
    if problems:
        yield Error(f"{SETTING}: {' '.join(problems)}", id="pulljobs.E034")


def _missing_extra(settings: Settings) -> Iterator[CheckMessage]:
    needed = {"METRICS": "prometheus_client", "TRACING": "opentelemetry"}
    for name, package in needed.items():
        if getattr(settings, name) and find_spec(package) is None:
            yield Error(
                f"{SETTING}[{name!r}] is on, but the package {package} is missing.",
                hint="python -m pip install 'pulljobs[metrics]'",
                id="pulljobs.E018",
            )


def _naive_times() -> list[CheckMessage]:
    if django_settings.USE_TZ:
        return []
    return [
        Error(
            "pulljobs needs USE_TZ: without it Django reads naive times from the database, which "
            "can't be compared with those of jobs, leases and pauses.",
            hint="Set USE_TZ = True; pages still show times in TIME_ZONE.",
            id="pulljobs.E022",
        )
    ]


def _no_authtoken(settings: Settings) -> Iterator[CheckMessage]:
    """Warn if TokenAuthentication is configured but its app is not installed."""
    if OF_DRF[-1] in settings.API_AUTHENTICATION and not apps.is_installed(AUTHTOKEN):
        yield Warning(
            f"{SETTING}['API_AUTHENTICATION'] names TokenAuthentication, which is left out.",
            hint=f"Add {AUTHTOKEN!r} to INSTALLED_APPS and migrate.",
            id="pulljobs.W002",
        )


def _no_authentication(settings: Settings) -> Iterator[CheckMessage]:
    """Report authentication classes that can't be imported: every request would fail."""
    for name in settings.API_AUTHENTICATION if find_spec("rest_framework") else ():
        try:
            import_string(name)
        except ImportError as error:
            yield Error(f"{SETTING}['API_AUTHENTICATION']: {error}.", id="pulljobs.E023")


def _wrong_keys(settings: Settings) -> Iterator[CheckMessage]:
    if not encryption.is_available():
        if settings.TOKEN_KEYS or apps.is_installed("rest_framework"):
            yield Warning(
                "The package cryptography is missing: pages can't show tokens again, and push "
                "delivery can't send them.",
                hint="python -m pip install 'pulljobs[api]'",
                id="pulljobs.W001",
            )
        return
    try:
        encryption.keys()
    except (ValueError, TypeError, AttributeError):
        yield Error(
            f"{SETTING}['TOKEN_KEYS'] must be Fernet keys.",
            hint="Make one with cryptography.fernet.Fernet.generate_key().decode().",
            id="pulljobs.E012",
        )


def _is_base64(secret: object) -> bool:
    try:
        return isinstance(secret, str) and bool(base64.b64decode(secret, validate=True))
    except ValueError:
        return False
