"""/livez and /readyz: whether the process lives, and whether it can do its work."""

import time
from typing import Final

from django.db import DatabaseError, InterfaceError, connections
from django.db.migrations.executor import MigrationExecutor
from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs.api import problems
from pulljobs.api.base_views import ProblemsTold, ProtocolView
from pulljobs.api.leases.long_poll import waiters
from pulljobs.conf import settings
from pulljobs.hooks import app_labels

SILENCE: Final = 15.0
"""Seconds without a pass after which a loop counts as stuck."""


class Live(ProblemsTold, ProtocolView):
    """It answers: no more is asked."""

    throttle_classes = []
    authentication_classes = []

    def get(self, request: Request) -> Response:
        return Response({"Status": "ok"})


class Ready(Live):
    def get(self, request: Request) -> Response:
        if trouble := _trouble():
            raise problems.not_ready(trouble)
        return Response({"Status": "ok"})


def _trouble() -> str:
    try:
        with connections[settings().DATABASE].cursor() as cursor:
            cursor.execute("SELECT 1")
        unapplied = _unapplied()
    except (DatabaseError, InterfaceError):
        return "The database can't be reached"
    if unapplied:
        return "Migrations are not applied: run manage.py migrate"
    waiting = waiters.running()
    if waiting is not None and time.monotonic() - waiting.ticked > SILENCE:
        return "The loop that looks after waiting pulls is stuck"
    return ""


_applied: set[str] = set()


def _unapplied() -> bool:
    """Once they are applied they stay so."""
    using = settings().DATABASE
    if using not in _applied:
        executor = MigrationExecutor(connections[using])
        ours = [node for node in executor.loader.graph.leaf_nodes() if node[0] in app_labels]
        if executor.migration_plan(ours):
            return True
        _applied.add(using)
    return False
