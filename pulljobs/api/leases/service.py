"""Routes lookup, livez and readyz: discovery of servers by clients, and health checks."""

import time
from typing import Any, Final

from django.contrib.auth.models import AnonymousUser
from django.db import DatabaseError, InterfaceError, connections
from django.db.migrations.executor import MigrationExecutor
from django.db.models.functions import Now
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs.api import exceptions
from pulljobs.api.authentication import authenticate_channel
from pulljobs.api.base_views import ProblemMixin, ProtocolView
from pulljobs.api.broker.links import path_of
from pulljobs.api.leases.bodies import HealthBody, ListedConsumerBody, LookupBody
from pulljobs.api.leases.long_poll import waiters
from pulljobs.conf import settings
from pulljobs.diagnosis import serving
from pulljobs.engine.deadlines import WorkDeadline
from pulljobs.hooks import app_labels
from pulljobs.models import Channel, Consumer, Node
from pulljobs.storage.schema import how_to_migrate

SILENCE: Final = 15.0
"""Seconds without a successful pass of the waiters after which the process is not ready."""
ANSWER_SECONDS: Final = 5.0
"""Time within which the database must answer the check of readiness."""
MOST_ADDRESSES: Final = 100
MOST_CONSUMERS: Final = 1000
OK: Final[HealthBody] = {"Status": "ok"}


class ChannelToken(BaseAuthentication):
    """Authentication by the token of the channel that the query string names."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Channel]:
        name = request.GET.get("channel", "")
        return AnonymousUser(), authenticate_channel(request.headers, name)


class LookupView(ProblemMixin, ProtocolView):
    """View that lists the base URLs of live API servers and a channel's consumers, for clients."""

    authentication_classes = [ChannelToken]

    def get(self, request: Request) -> Response:
        here = request.build_absolute_uri(path_of(request).removesuffix("/lookup") or "/")
        # Lookups at other servers return this one, too.
        waiters.process_waiters().learn_address(here)
        body: LookupBody = {
            "Addresses": sorted({settings().ADDRESS or here, *_live_addresses()}),
            "Consumers": _consumers_of(request.auth),
        }
        return Response(body)


class LiveView(ProblemMixin, ProtocolView):
    """View of livez, which answers 200 as long as the process serves requests."""

    throttle_classes = []
    authentication_classes = []

    def get(self, request: Request) -> Response:
        return Response(OK)


class ReadyView(LiveView):
    """View of readyz: 200 if the process can do its work, else 503 with the reason."""

    def get(self, request: Request) -> Response:
        if problem := _find_problem():
            raise exceptions.not_ready(problem)
        return Response(OK)


def _live_addresses() -> list[str]:
    """Return the base URLs of API processes with a recent heartbeat, at most MOST_ADDRESSES."""
    oldest = Now() - serving.heartbeat_limit()
    nodes = Node.objects.using(settings().DATABASE).filter(
        kind=Node.Kind.API, stopped_at=None, heartbeat_at__gt=oldest
    )
    addresses = nodes.exclude(address="").values_list("address", flat=True).distinct()
    return list(addresses[:MOST_ADDRESSES])


def _consumers_of(channel: Any) -> list[ListedConsumerBody]:
    rows = Consumer.objects.using(settings().DATABASE).filter(channel=channel, deleted_at=None)
    return [
        {"ID": row.name, "Name": row.title or row.name, "Type": Consumer.Type(row.type)}
        for row in rows.order_by("name")[:MOST_CONSUMERS]
    ]


def _connect_within(using: str, seconds: float) -> None:
    """Open this thread's connection if it is closed, or raise OperationalError after `seconds`.

    With Django's `pool`, the time limit of the pool counts instead.
    """
    connection = connections[using]
    given = connection.settings_dict
    options = {**given["OPTIONS"], "connect_timeout": round(seconds)}
    connection.settings_dict = {**given, "OPTIONS": options}
    try:
        connection.ensure_connection()
    finally:
        connection.settings_dict = given


def _find_problem() -> str:
    """Return the reason why the process can't do its work, or "" if it can."""
    using = settings().DATABASE
    try:
        with WorkDeadline(connections[using], ANSWER_SECONDS):
            _connect_within(using, ANSWER_SECONDS)
            with connections[using].cursor() as cursor:
                cursor.execute("SELECT current_setting('transaction_read_only')::bool")
                [is_read_only] = cursor.fetchone()
            unapplied = _has_unapplied_migrations()
    except (DatabaseError, InterfaceError):
        return "The database can't be reached"
    if is_read_only:
        return "The database refuses writes: it is a standby, or its sessions are read-only"
    if unapplied:
        return f"Migrations are not applied: {how_to_migrate(using)}"
    running = waiters.running_waiters()
    if running is not None and time.monotonic() - running.ticked > SILENCE:
        return "The loop that maintains waiting pulls is stuck"
    return ""


_applied: set[str] = set()


def _has_unapplied_migrations() -> bool:
    """Return True if migrations of pulljobs are not applied. Once all are, it checks no more."""
    using = settings().DATABASE
    if using not in _applied:
        executor = MigrationExecutor(connections[using])
        ours = [node for node in executor.loader.graph.leaf_nodes() if node[0] in app_labels]
        if executor.migration_plan(ours):
            return True
        _applied.add(using)
    return False
