"""Processes that claim or serve jobs, with the report of their last heartbeat."""

import json
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.safestring import SafeString

from pulljobs.admin import looks
from pulljobs.admin.changelist import ReadOnlyAdmin
from pulljobs.conf import settings
from pulljobs.diagnosis import serving
from pulljobs.models import Node

MISSED_BEATS = 2
"""Missed heartbeats after which this page shows silence. Alarms use `serving`, a beat later."""


@admin.register(Node)
class NodeAdmin(ReadOnlyAdmin):
    ordering = ("-heartbeat_at",)
    list_display = ("name", "kind", "status", "started", "heard", "held_back")
    list_filter = ("kind",)
    list_per_page = 50
    fieldsets = (
        (None, {"fields": ("name", "kind", "address", "status", "started", "heard")}),
        ("Report", {"fields": ("report_json",)}),
    )
    readonly_fields = ("status", "started", "heard", "report_json")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request).annotate(now=Now())
        return rows

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return ChangeList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        return lookup == "kind__exact"

    @admin.display(description="status")
    def status(self, node: Any) -> str:
        """Return the status by heartbeats. A silent node holds jobs until its leases expire."""
        if node.stopped_at is not None:
            return "stopped"
        silence = node.now - node.heartbeat_at
        if silence > MISSED_BEATS * settings().HEARTBEAT_INTERVAL:
            return f"silent for {silence.total_seconds():.0f} s"
        dead = [name for name, loop in node.report.get("loops", {}).items() if not loop["alive"]]
        return f"dead loops: {', '.join(dead)}" if dead else "alive"

    @admin.display(description="holds back")
    def held_back(self, node: Node) -> str:
        """Return the consumers that the node holds back because their jobs fail."""
        shown = [f"{held.subject} (level {held.level})" for held in serving.held_back(node)]
        return ", ".join(shown) or looks.NOTHING

    @admin.display(description="started at")
    def started(self, node: Node) -> str:
        return looks.format_time(node.started_at)

    @admin.display(description="last heartbeat")
    def heard(self, node: Node) -> str:
        return looks.format_time(node.heartbeat_at)

    @admin.display(description="report")
    def report_json(self, node: Node) -> SafeString | str:
        return looks.preformatted(json.dumps(node.report, indent=2)) if node.report else "none"
