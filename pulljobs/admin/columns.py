"""Columns and search of both live jobs and the archive."""

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from pulljobs import ids
from pulljobs.admin import looks, payloads, search
from pulljobs.admin.changelist import ReadOnlyAdmin
from pulljobs.diagnosis import timeline
from pulljobs.models import ArchivedJob, Job


class JobRowsAdmin(ReadOnlyAdmin):
    """Base of the pages of live jobs and of the archive."""

    id_field: ClassVar[str]
    """Field with the id of the job."""

    list_select_related = ("consumer__channel",)
    search_help_text = search.HELP

    @admin.display(description="job")
    def xid(self, row: Job | ArchivedJob) -> str:
        return ids.encode(getattr(row, self.id_field))

    @admin.display(description="state")
    def status(self, row: Job | ArchivedJob) -> SafeString:
        return looks.status_of(row)

    @admin.display(description="retries")
    def retries(self, row: Job | ArchivedJob) -> int:
        return row.retry_count

    @admin.display(description="channel / consumer")
    def subscription(self, row: Job | ArchivedJob) -> str:
        return f"{row.consumer.channel} / {row.consumer}"

    @admin.display(description="channel / consumer")
    def subscription_link(self, row: Job | ArchivedJob) -> SafeString:
        return looks.consumer_link(row.consumer)

    @admin.display(description="last error")
    def last_error(self, row: Job | ArchivedJob) -> SafeString | str:
        return looks.preformatted(row.error)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Leave the search to `window`."""
        return queryset, False

    def about(self, request: HttpRequest, row: Job | ArchivedJob) -> dict[str, Any]:
        """Return what the page of a row shows in addition to its fields."""
        job_id = getattr(row, self.id_field)
        return {
            "subtitle": self.xid(row),
            "message": payloads.message_of(row, readable=payloads.may_read(request)),
            "to_read_it": payloads.PERMISSION,
            "timeline": [
                (entry, looks.record_page(entry.record))
                for entry in timeline.read_timeline(job_id, row.message_id)
            ],
        }

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Allow only the site's own scripts, because the page shows payloads."""
        response = super().change_view(request, object_id, form_url, extra_context)
        response.headers.setdefault("Content-Security-Policy", payloads.page_policy())
        return response
