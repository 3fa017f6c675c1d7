"""Archive of jobs: a row per settlement."""

import json
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from pulljobs.admin import asking, looks
from pulljobs.admin.columns import JobRowsAdmin
from pulljobs.admin.filters import (
    ChannelFilter,
    ConsumerFilter,
    KeyFilter,
    ReasonFilter,
    SettledFilter,
    SettledStateFilter,
)
from pulljobs.conf import settings
from pulljobs.models import ArchivedJob, Job
from pulljobs.storage import settlements
from pulljobs.storage.windows import IdSpan, IdWindow


@admin.register(ArchivedJob)
class ArchivedJobAdmin(JobRowsAdmin):
    id_field = "job_id"
    actions = None
    list_display = ("xid", "status", "subscription", "retries", "settled")
    list_filter = (
        SettledStateFilter,
        ReasonFilter,
        SettledFilter,
        ChannelFilter,
        ConsumerFilter,
        KeyFilter,
    )
    search_fields = ("job_id",)
    fieldsets = (
        (None, {"fields": ("xid", "live", "state", "reason", "last_error", "result_json")}),
        ("Delivery", {"fields": ("subscription_link", "node", "retry_count", "deliveries")}),
        (
            "Times",
            {"fields": ("created_at", "claimed_at", "started_at", "settled_at", "run_seconds")},
        ),
    )
    readonly_fields = ("xid", "live", "last_error", "result_json", "subscription_link", "node")

    def window(self, request: HttpRequest, span: IdSpan, rows: QuerySet[Any]) -> IdWindow:
        return settlements.window(settings().DATABASE, asking.settled(request.GET), span)

    @admin.display(description="settled at")
    def settled(self, archived: ArchivedJob) -> str:
        return looks.format_time(archived.settled_at)

    @admin.display(description="result")
    def result_json(self, archived: ArchivedJob) -> SafeString | str:
        if archived.result is None:
            return looks.NOTHING
        return looks.preformatted(json.dumps(archived.result, indent=2, ensure_ascii=False))

    @admin.display(description="live job")
    def live(self, archived: ArchivedJob) -> SafeString | str:
        job = Job.objects.using(settings().DATABASE).filter(id=archived.job_id).first()
        if job is None:
            return "no longer live"
        url = reverse("admin:pulljobs_job_change", args=[job.id])
        return format_html('<a href="{}">{}</a>', url, job.state)

    @admin.display(description="node")
    def node(self, archived: ArchivedJob) -> str:
        return str(looks.node_of(archived) or looks.NOTHING)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        archived = self.get_object(request, object_id)
        context = {} if archived is None else self.about(request, archived)
        return super().change_view(request, object_id, form_url, (extra_context or {}) | context)
