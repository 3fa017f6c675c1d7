"""Base of the lists of jobs and of settlements: their columns, search and pages of a row."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from pulljobs import hooks, ids
from pulljobs.admin import formats, payloads, search, summaries
from pulljobs.admin.changelist import ReadOnlyAdmin
from pulljobs.admin.job_list import JobsChangeList
from pulljobs.admin.links import Links, consumer_link
from pulljobs.admin.search import SearchedRange
from pulljobs.diagnosis import timeline
from pulljobs.models import ArchivedJob, Job
from pulljobs.storage.windows import IdSpan


class JobRowsAdmin(ReadOnlyAdmin):
    """Base of the admins of live jobs and of the archive."""

    list_select_related = ("consumer__channel",)
    search_help_text = search.HELP

    def search(self, request: HttpRequest, span: IdSpan) -> SearchedRange:
        """Return the ids of a page of rows in `span` that match the search term of the request."""
        raise NotImplementedError

    def rows_of(self, request: HttpRequest, ids: list[int]) -> list[Any]:
        """Return the rows with these ids in the given order, which is newest first."""
        raise NotImplementedError

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return JobsChangeList

    @admin.display(description="job")
    def xid(self, row: Job | ArchivedJob) -> str:
        return ids.encode(formats.job_id_of(row))

    @admin.display(description="what it does")
    def summary(self, row: Any) -> SafeString:
        return summaries.show(row.summary)

    @admin.display(description="state")
    def status(self, row: Job | ArchivedJob) -> SafeString:
        return formats.status_of(row)

    @admin.display(description="attempts")
    def attempts(self, row: Job | ArchivedJob) -> SafeString | str:
        """Render the number of claims of the job, with the number of counted retries."""
        if not row.retry_count:
            return str(row.deliveries)
        retries = "(1 retry)" if row.retry_count == 1 else f"({row.retry_count} retries)"
        return format_html('{} <span class="pulljobs-brief">{}</span>', row.deliveries, retries)

    @admin.display(description="created at")
    def made(self, row: Any) -> SafeString:
        return formats.time_and_age(ids.time_of(formats.job_id_of(row)), row.listed_at)

    @admin.display(description="channel / consumer")
    def subscription(self, row: Job | ArchivedJob) -> str:
        return f"{row.consumer.channel} / {row.consumer}"

    @admin.display(description="channel / consumer")
    def subscription_link(self, row: Any) -> SafeString | str:
        return consumer_link(row.links, row.consumer)

    @admin.display(description="last error")
    def last_error(self, row: Job | ArchivedJob) -> SafeString | str:
        return formats.preformatted(row.error)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Return all rows: the change list calls `search` in place of Django's search."""
        return queryset, False

    def about(self, request: HttpRequest, row: Job | ArchivedJob) -> dict[str, Any]:
        """Return the template context of a job's page: message, timeline, links that apps add."""
        links = Links(request)
        return {
            "subtitle": self.xid(row),
            "links": [link for name in hooks.job_links for link in hooks.load(name)(request, row)],
            "message": payloads.message_of(row, readable=payloads.may_read(request)),
            "payload": links.address("pulljobs_job_payload", row.message_id),
            "to_read_it": payloads.PERMISSION,
            "timeline": [
                (entry, links.record(entry.record))
                for entry in timeline.read_timeline(formats.job_id_of(row), row.message_id)
            ],
        }

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show a job, with a CSP that stops scripts in its payload, which comes from outside."""
        response = super().change_view(request, object_id, form_url, extra_context)
        response.headers.setdefault("Content-Security-Policy", payloads.page_policy())
        return response
