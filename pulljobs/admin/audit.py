"""Pages of the audit trail: the actions of operators, and buttons for those that still run."""

import csv
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseRedirect,
    StreamingHttpResponse,
)
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _

from pulljobs import auditing, ids
from pulljobs.admin import formats
from pulljobs.admin.changelist import ReadOnlyAdmin
from pulljobs.admin.links import Links
from pulljobs.admin.operations import OPERATIONS
from pulljobs.conf import settings
from pulljobs.models import AuditedBatch, AuditEntry
from pulljobs.states import Event

SHOWN: Final = 20
"""Largest number of changed jobs, and of jobs that were not changed, on the page of an action."""
GO_ON_SECONDS: Final = 2.0
"""Time for which a request of the button "go on" works on an action that has not ended."""


class JobResult(NamedTuple):
    """Job on the page of an operator's action, in the list of changed or of refused jobs."""

    job_id: int
    xid: str
    why: str = ""
    """Reason why the job was not changed, or empty if it was."""


class Echo:
    """File for the CSV writer whose `write` returns each line, so that lines can be streamed."""

    def write(self, line: str) -> str:
        return line


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    list_display = ("when", "by", "act", "subject", "jobs", "status")
    list_display_links = ("when",)
    list_filter = ("act",)
    actions = None
    fieldsets = (
        (None, {"fields": ("when", "by", "act", "subject", "at")}),
        (_("Jobs"), {"fields": ("status", "previewed", "done", "refused", "ended")}),
    )
    readonly_fields = ("when", "status", "previewed", "ended")

    class Media:
        js = ["pulljobs/admin.js"]

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        return lookup == "act__exact" or super().lookup_allowed(lookup, value, request)

    @admin.display(description=_("asked at"))
    def when(self, entry: AuditEntry) -> str:
        return formats.format_time(entry.asked_at)

    @admin.display(description=_("ended at"))
    def ended(self, entry: AuditEntry) -> str:
        return formats.format_time(entry.finished_at)

    @admin.display(description=_("jobs"))
    def jobs(self, entry: AuditEntry) -> str:
        if entry.act not in set(Event):
            return formats.NOTHING
        return f"{entry.done:,}" + (f", {entry.refused:,} not changed" if entry.refused else "")

    @admin.display(description=_("previewed"))
    def previewed(self, entry: AuditEntry) -> str:
        if entry.expected is None:
            return formats.NOTHING
        return f"{entry.expected:,}" + (" or more" if entry.is_more else "")

    @admin.display(description=_("status"))
    def status(self, entry: AuditEntry) -> str:
        if entry.finished_at is None:
            return f"running, {entry.done:,} jobs done"
        return f"stopped by {entry.stopped_by}" if entry.stopped_by else "finished"

    def get_urls(self) -> list[URLPattern]:
        view, name = self.admin_site.admin_view, "pulljobs_auditentry"
        own = [
            path("<int:id>/outcome.csv", view(self.outcome), name=f"{name}_outcome"),
            path("<int:id>/<str:button>/", view(self.press), name=f"{name}_press"),
        ]
        return [*super().get_urls()[:-1], *own, super().get_urls()[-1]]

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        entry = self.get_object(request, object_id)
        context = {} if entry is None else self._about(request, entry)
        return super().change_view(request, object_id, form_url, (extra_context or {}) | context)

    def _about(self, request: HttpRequest, entry: AuditEntry) -> dict[str, Any]:
        may = self._may(request, entry)
        return {
            "subtitle": self.when(entry),
            "done": list(islice(_done(entry), SHOWN)),
            "refused": list(islice(_refused(entry), SHOWN)),
            "is_under_way": entry.finished_at is None,
            "may_see_jobs": Links(request).jobs() is not None,
            "buttons": ["go-on", "stop"] if entry.finished_at is None and may else [],
        }

    def press(self, request: HttpRequest, id: int, button: str) -> HttpResponse:
        entry = AuditEntry.objects.using(settings().DATABASE).filter(pk=id).first()
        if entry is None or button not in {"go-on", "stop"}:
            raise Http404
        if request.method != "POST" or not self._may(request, entry):
            raise PermissionDenied
        if button == "go-on":
            auditing.proceed(GO_ON_SECONDS, entry.pk)
        elif auditing.stop(entry, by=request.user.get_username()):
            messages.warning(request, _("Stopped: the remaining jobs stay as they are."))
        return HttpResponseRedirect(
            formats.address(self.admin_site.name, "pulljobs_auditentry_change", id)
        )

    def outcome(self, request: HttpRequest, id: int) -> StreamingHttpResponse:
        """Stream the jobs of an audit entry as CSV, with the reason for each unchanged job."""
        entry = AuditEntry.objects.using(settings().DATABASE).filter(pk=id).first()
        if entry is None:
            raise Http404
        if not self.has_view_permission(request, entry):
            raise PermissionDenied
        lines = map(csv.writer(Echo()).writerow, _table(entry))
        response = StreamingHttpResponse(lines, content_type="text/csv; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="{entry}.csv"'
        return response

    def _may(self, request: HttpRequest, entry: AuditEntry) -> bool:
        """Return True if the entry is about an action on jobs that the user may do."""
        return entry.act in set(Event) and request.user.has_perm(
            OPERATIONS[Event(entry.act)].permission
        )


def _batches(entry: AuditEntry) -> QuerySet[AuditedBatch]:
    return AuditedBatch.objects.using(settings().DATABASE).filter(entry=entry).order_by("pk")


def _done(entry: AuditEntry) -> Iterator[JobResult]:
    """Yield the jobs of the first batch of an action that changed any, as examples for its page."""
    batches = _batches(entry).exclude(done=[])[:1]
    return (JobResult(id, ids.encode(id)) for batch in batches for id in batch.done)


def _refused(entry: AuditEntry) -> Iterator[JobResult]:
    if not entry.refused:
        return
    for batch in _batches(entry).exclude(refused={}).defer("done")[:SHOWN]:
        for id, why in batch.refused.items():
            yield JobResult(int(id), ids.encode(int(id)), why)


def _table(entry: AuditEntry) -> Iterator[tuple[str, ...]]:
    yield "job", "number", "outcome", "why"
    for batch in _batches(entry).iterator(chunk_size=10):
        for id in batch.done:
            yield ids.encode(id), str(id), entry.act, ""
        for text, why in batch.refused.items():
            yield ids.encode(int(text)), text, "not changed", why
