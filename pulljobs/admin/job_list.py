"""Change lists that can be searched for ids and texts: the base, and that of jobs."""

from typing import Any

from django.contrib.admin.views.main import SEARCH_VAR
from django.http import HttpRequest

from pulljobs.admin import formats, payloads, summaries
from pulljobs.admin.changelist import KeysetChangeList
from pulljobs.admin.search import SearchedRange
from pulljobs.conf import settings
from pulljobs.storage import nodes
from pulljobs.storage.windows import IdSpan, IdWindow


class SearchedChangeList(KeysetChangeList):
    """Change list that finds rows by the `search` of its admin while there is a search term."""

    searched: SearchedRange | None = None
    """Result of the search, or None if there is no search term."""
    text_link = ""
    """Query that searches the term as a text, for a term that was found as an id."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if self.searched is not None:
            self.is_cut_off = False

    def read_window(self, request: HttpRequest, span: IdSpan) -> IdWindow:
        if not self.query:
            return super().read_window(request, span)
        listed: Any = self.model_admin
        searched: SearchedRange = listed.search(request, span)
        self.searched = searched
        self.text_link = self.get_query_string({SEARCH_VAR: f'"{searched.text}"'})
        return searched.window


class JobsChangeList(SearchedChangeList):
    """Change list that sets two attributes of each row, a job or settlement.

    They are `summary`, that of its message, and `listed_at`, the time at which it was read.
    """

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        summaries.attach(self.result_list, readable=payloads.may_read(request))
        now = nodes.clock(settings().DATABASE) if self.result_list else None
        for row in self.result_list:
            row.listed_at = now

    def read_rows(self, request: HttpRequest, ids: list[int]) -> list[Any]:
        listed: Any = self.model_admin
        rows: list[Any] = listed.rows_of(request, ids)
        return rows

    def url_for_result(self, result: Any) -> str:
        return formats.page_of(self.model_admin.admin_site.name, result)
