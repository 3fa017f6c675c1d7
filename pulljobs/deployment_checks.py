"""System checks of a deployment: connections, middleware, reaping, open access, and consumers.

Those with the tag `database` query the aliases that Django names in `databases`. It names none
unless the caller asked for that, as by `check --database default`.
"""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Tags, Warning, register
from django.db import DatabaseError, connections
from django.urls import get_resolver
from django.utils.module_loading import import_string

from pulljobs.conf import LEAST_LEASE, SETTING, Access, settings
from pulljobs.engine.connection_bounds import CONNECTION_BOUNDS
from pulljobs.errors import ConfigurationError

REQUEST_IDS = "pulljobs.api.middleware.request_id"
LISTED = 10
Apps = Sequence[AppConfig] | None
"""Apps to check, or None for all: what Django passes to each check."""


@register(Tags.database)
def check_push(
    app_configs: Apps = None,
    databases: Sequence[str] | None = None,
    **kwargs: Any,
) -> list[CheckMessage]:
    """Warn if there are push consumers, but the package httpcore is missing."""
    if not databases or find_spec("httpcore") is not None or not _has_push_consumers(databases):
        return []
    return [
        Warning(
            "There are push consumers, but the package httpcore is missing: nothing is delivered.",
            hint="python -m pip install 'pulljobs[push]'",
            id="pulljobs.W004",
        )
    ]


@register(Tags.database)
def check_leases(
    app_configs: Apps = None,
    databases: Sequence[str] | None = None,
    **kwargs: Any,
) -> list[CheckMessage]:
    """Warn of consumers whose leases are too short for their renewal, at most ten of them."""
    short = list(_consumers_with_short_leases(databases or ()))
    if not short:
        return []
    return [
        Warning(
            f"Leases of {', '.join(short)} are shorter than {LEAST_LEASE.total_seconds():g} s: "
            "they end before their holders can renew them, and the jobs run twice.",
            hint="Set a longer lease_duration; workers claim with this shortest lease until then.",
            id="pulljobs.W011",
        )
    ]


def _consumers_with_short_leases(databases: Sequence[str]) -> Iterator[str]:
    try:
        if (using := settings().DATABASE) in databases:
            rows = apps.get_model("pulljobs.Consumer").objects.using(using).filter(deleted_at=None)
            short = rows.filter(lease_duration__lt=LEAST_LEASE).select_related("channel")
            for consumer in short.order_by("pk")[:LISTED]:
                yield consumer.path
    except (ConfigurationError, DatabaseError):  # reported elsewhere; before the first migration
        return


def _has_push_consumers(databases: Sequence[str]) -> bool:
    try:
        using = settings().DATABASE
        consumers = apps.get_model("pulljobs.Consumer").objects.using(using)
        return using in databases and consumers.filter(type="push", deleted_at=None).exists()
    except (ConfigurationError, DatabaseError):  # reported elsewhere; before the first migration
        return False


@register(Tags.security, deploy=True)
def check_deployment(app_configs: Apps = None, **kwargs: Any) -> list[CheckMessage]:
    """Warn of settings that let anyone use the HTTP API without a login or a token."""
    open_to = {
        "API_ACCESS": (Access.USERS, "can manage or read the registry and its messages over HTTP."),
        "TOKENS_REQUIRED": (True, "can publish, take and settle jobs over HTTP."),
    }
    try:
        conf = settings()
    except ConfigurationError:  # check_settings reports it
        return []
    return [
        Warning(
            f"{SETTING}[{name!r}] is {str(value)!r}: without a login or a token anyone {may}",
            hint="Remove it, unless only a network that you trust can reach the API.",
            id="pulljobs.W003",
        )
        for name, (safe, may) in open_to.items()
        if (value := getattr(conf, name)) != safe
    ]


@register(deploy=True)
def check_connection_bounds(app_configs: Apps = None, **kwargs: Any) -> list[CheckMessage]:
    """Warn if connections over a network have no time limit for a server that falls silent."""
    try:
        using = settings().DATABASE
    except ConfigurationError:  # check_settings reports it
        return []
    database = connections[using].settings_dict if using in connections else {}
    host, options = str(database.get("HOST") or ""), database.get("OPTIONS", {})
    lacking = {name: value for name, value in CONNECTION_BOUNDS.items() if name not in options}
    # A service file may have the bounds.
    if not lacking or "service" in options or not host or host.startswith(("/", "@")):
        return []
    return [
        Warning(
            f"DATABASES[{using!r}]['OPTIONS'] lacks {', '.join(lacking)}: if the server or the "
            "network falls silent, requests and handlers wait for minutes or for ever.",
            hint=f"Add {', '.join(f'{name!r}: {value}' for name, value in lacking.items())}.",
            id="pulljobs.W010",
        )
    ]


@register(Tags.security, deploy=True)
def check_address(app_configs: Apps = None, **kwargs: Any) -> list[CheckMessage]:
    """Warn if ADDRESS is empty: clients then get an address that another caller sent as Host."""
    try:
        is_known = bool(settings().ADDRESS) or not _is_api_mounted()
    except ConfigurationError:  # check_settings reports it
        return []
    if is_known:
        return []
    return [
        Warning(
            f"{SETTING}['ADDRESS'] is empty: /lookup sends clients of all channels to the address "
            "that some caller sent as Host, and they send their tokens there.",
            hint="Set it to the URL at which the API is mounted, with https:// if it has TLS.",
            id="pulljobs.W008",
        )
    ]


@register
def check_middleware(app_configs: Apps = None, **kwargs: Any) -> list[CheckMessage]:
    """Warn of middleware that makes every long poll hold a thread under ASGI."""
    if not _is_api_mounted():
        return []
    return [
        Warning(
            f"{name} in MIDDLEWARE is synchronous only: under ASGI every long poll holds a thread.",
            hint="Make it async_capable, or silence this if only WSGI serves the API.",
            id="pulljobs.W005",
        )
        for name in sync_only_middleware()
    ]


@register
def check_reaping(app_configs: Apps = None, **kwargs: Any) -> list[CheckMessage]:
    """Warn if processes that hand out leases over HTTP do not reap."""
    try:
        is_reaped = settings().REAP_WHILE_SERVING or not _is_api_mounted()
    except ConfigurationError:  # check_settings reports it
        return []
    if is_reaped:
        return []
    return [
        Warning(
            f"{SETTING}['REAP_WHILE_SERVING'] is False: jobs of HTTP clients that crash come back "
            "only while a worker runs.",
            hint="Remove the setting, or keep a worker running and silence this.",
            id="pulljobs.W009",
        )
    ]


@register
def check_request_ids(app_configs: Apps = None, **kwargs: Any) -> list[CheckMessage]:
    """Warn if error pages of Django lack a request id: pulljobs' middleware is missing."""
    if REQUEST_IDS in django_settings.MIDDLEWARE or not _is_api_mounted():
        return []
    return [
        Warning(
            "Answers to unknown paths and server errors have no X-Request-ID.",
            hint=f"Put {REQUEST_IDS!r} first in MIDDLEWARE.",
            id="pulljobs.W006",
        )
    ]


def _is_api_mounted() -> bool:
    return bool(getattr(django_settings, "ROOT_URLCONF", "")) and (
        "pulljobs" in get_resolver().app_dict
    )


def sync_only_middleware() -> list[str]:
    """Return the names in MIDDLEWARE for which Django holds a thread in each request under ASGI."""
    return [name for name in django_settings.MIDDLEWARE if _is_sync_only(name)]


def _is_sync_only(name: str) -> bool:
    try:
        return not getattr(import_string(name), "async_capable", False)
    except ImportError:  # Django reports it, and does not serve
        return False
