"""Pages of nodes: processes that claim jobs or serve the API, with their last reports."""

import json
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from pulljobs.admin import formats, node_report
from pulljobs.admin.changelist import CheckedChangeList, ReadOnlyAdmin
from pulljobs.conf import settings
from pulljobs.diagnosis import serving
from pulljobs.models import Node

MISSED_BEATS = 2
"""Missed heartbeats after which this page shows a node as silent.

Findings and checks wait for one more, by `serving.heartbeat_limit`.
"""


@admin.register(Node)
class NodeAdmin(ReadOnlyAdmin):
    ordering = ("-heartbeat_at",)
    list_display = ("name", "kind", "status", "started", "heard", "held_back")
    list_filter = ("kind",)
    list_per_page = 50
    fieldsets = (
        (None, formats.in_two_columns("name", "kind", "address", "status", "started", "heard")),
    )
    readonly_fields = ("status", "started", "heard")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request).annotate(now=Now())
        return rows

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return CheckedChangeList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        return lookup == "kind__exact"

    @admin.display(description="status")
    def status(self, node: Any) -> str:
        """Return "stopped", "silent for 90 s", "dead loops: " with their names, or "alive"."""
        if node.stopped_at is not None:
            return "stopped"
        silence = node.now - node.heartbeat_at
        if silence > MISSED_BEATS * settings().HEARTBEAT_INTERVAL:
            return f"silent for {silence.total_seconds():.0f} s"
        dead = serving.dead_loops(node)
        return f"dead loops: {', '.join(dead)}" if dead else "alive"

    @admin.display(description="holds back")
    def held_back(self, node: Node) -> str:
        """Return the consumers and tasks with an open circuit and its level, or "-" for none."""
        shown = [f"{held.subject} (level {held.level})" for held in serving.held_back(node)]
        return ", ".join(shown) or formats.NOTHING

    @admin.display(description="started at")
    def started(self, node: Any) -> SafeString:
        return formats.time_and_age(node.started_at, node.now)

    @admin.display(description="last heartbeat")
    def heard(self, node: Any) -> SafeString:
        return formats.time_and_age(node.heartbeat_at, node.now)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        node = self.get_object(request, object_id)
        context = {} if node is None else _about(node)
        return super().change_view(request, object_id, form_url, context | (extra_context or {}))


def _about(node: Any) -> dict[str, Any]:
    return {
        "original_report": node_report.read_report(node.links, node),
        "report_json": json.dumps(node.report, indent=2, ensure_ascii=False),
    }
