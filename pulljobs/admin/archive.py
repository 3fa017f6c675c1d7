"""Pages of the archive: a list of settlements, and a page for each of them."""

import json
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from pulljobs.admin import formats, list_query, payloads, search
from pulljobs.admin.columns import JobRowsAdmin
from pulljobs.admin.filters import (
    ChannelFilter,
    ConsumerFilter,
    KeyFilter,
    ReasonFilter,
    SettledFilter,
    SettledStateFilter,
)
from pulljobs.admin.links import linked
from pulljobs.admin.search import SearchedRange
from pulljobs.conf import settings
from pulljobs.diagnosis import times
from pulljobs.models import ArchivedJob, Job
from pulljobs.storage import settlements, text_matching
from pulljobs.storage.windows import IdSpan, IdWindow


@admin.register(ArchivedJob)
class ArchivedJobAdmin(JobRowsAdmin):
    actions = None
    list_display = ("xid", "summary", "status", "subscription", "attempts", "made", "settled")
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
        (
            None,
            formats.in_two_columns("xid", "live", "state", "reason", "last_error", "result_json"),
        ),
        (
            "Delivery",
            formats.in_two_columns("subscription_link", "node", "retry_count", "deliveries"),
        ),
        (
            "Times",
            formats.in_two_columns("created", "claimed", "started", "settled", "run_time"),
        ),
    )
    readonly_fields = (
        "xid",
        "live",
        "last_error",
        "result_json",
        "subscription_link",
        "node",
        "created",
        "claimed",
        "started",
        "settled",
        "run_time",
    )

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fieldsets, without the job's result for users who may not see payloads."""
        hidden = () if payloads.may_read(request) else ("result_json",)
        return [
            (
                title,
                {**options, "fields": [each for each in options["fields"] if each not in hidden]},
            )
            for title, options in self.fieldsets
        ]

    def window(self, request: HttpRequest, span: IdSpan, rows: QuerySet[Any]) -> IdWindow:
        return settlements.window(settings().DATABASE, list_query.select_settled(request.GET), span)

    def search(self, request: HttpRequest, span: IdSpan) -> SearchedRange:
        using, meant = settings().DATABASE, list_query.select_settled(request.GET)
        rows = ArchivedJob.objects.using(using)
        return search.search(
            request,
            span,
            lambda term: list_query.find_settlements(term, meant),
            lambda at: settlements.window(using, meant, at),
            lambda read, query: text_matching.find_hits(rows, "id", read, query),
        )

    def rows_of(self, request: HttpRequest, ids: list[int]) -> list[ArchivedJob]:
        rows = self.get_queryset(request).select_related(*self.list_select_related)
        return list(rows.filter(pk__in=ids).order_by("-pk"))

    @admin.display(description="created at")
    def created(self, archived: ArchivedJob) -> str:
        return formats.format_time(archived.created_at)

    @admin.display(description="claimed at")
    def claimed(self, archived: ArchivedJob) -> str:
        return formats.format_time(archived.claimed_at)

    @admin.display(description="started at")
    def started(self, archived: ArchivedJob) -> str:
        return formats.format_time(archived.started_at)

    @admin.display(description="settled at")
    def settled(self, archived: ArchivedJob) -> str:
        return formats.format_time(archived.settled_at)

    @admin.display(description="result")
    def result_json(self, archived: ArchivedJob) -> SafeString | str:
        if archived.result is None:
            return formats.NOTHING
        return formats.preformatted(json.dumps(archived.result, indent=2, ensure_ascii=False))

    @admin.display(description="run time")
    def run_time(self, archived: ArchivedJob) -> str:
        seconds = archived.run_seconds
        return formats.NOTHING if seconds is None else times.format_run_time(seconds)

    @admin.display(description="live job")
    def live(self, archived: Any) -> SafeString | str:
        job = Job.objects.using(settings().DATABASE).filter(id=archived.job_id).first()
        if job is None:
            return "no longer live"
        return linked(archived.links.job(job.id), job.state)

    @admin.display(description="node")
    def node(self, archived: ArchivedJob) -> str:
        return str(formats.node_of(archived) or formats.NOTHING)

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
