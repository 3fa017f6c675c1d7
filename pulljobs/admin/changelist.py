"""Lists over tables too long to count: newest first, each page below the ids of the last."""

from typing import Any, Final

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from pulljobs.conf import settings

BELOW: Final = "id__lt"


class KeysetChangeList(ChangeList):
    """One row more than a page tells whether there is an older one."""

    older: str | None
    newest: str | None

    def get_results(self, request: HttpRequest) -> None:
        rows = list(self.queryset[: self.list_per_page + 1])
        page, rest = rows[: self.list_per_page], rows[self.list_per_page :]
        self.result_list = page
        self.older = self.get_query_string({BELOW: page[-1].pk}) if rest else None
        self.newest = self.get_query_string(remove=[BELOW]) if BELOW in self.params else None
        self.result_count = self.full_result_count = len(page)
        self.show_full_result_count = False
        self.show_admin_actions = bool(page)
        self.can_show_all = self.multi_page = False
        self.paginator = Paginator(page, self.list_per_page)


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # generic for mypy only
    """Rows that only the verbs of storage write."""

    ordering = ("-id",)
    sortable_by = ()
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).using(settings().DATABASE)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return KeysetChangeList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only what an index serves."""
        return lookup == BELOW or lookup in {
            getattr(choice, "parameter_name", None) for choice in self.list_filter
        }

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False
