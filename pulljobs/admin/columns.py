"""Columns and search that live jobs and their history share."""

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from pulljobs import ids
from pulljobs.admin import looks, search
from pulljobs.admin.changelist import ReadOnlyAdmin
from pulljobs.models import ArchivedJob, Job


class JobRowsAdmin(ReadOnlyAdmin):
    id_field: ClassVar[str]
    """Where a row has the id of its job."""

    list_select_related = ("consumer__channel",)
    search_help_text = search.HELP

    @admin.display(description="job")
    def xid(self, row: Job | ArchivedJob) -> str:
        return ids.encode(getattr(row, self.id_field))

    @admin.display(description="state")
    def stands(self, row: Job | ArchivedJob) -> str:
        return looks.state_of(row)

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
        if not search_term:
            return queryset, False
        return queryset.filter(search.matching(search_term, self.id_field)), False
