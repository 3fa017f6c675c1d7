"""Lists of tables that are too large to count: newest rows first, pages by ranges of ids."""

from typing import Any, ClassVar, Final

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db import DataError
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from pulljobs.admin.base import BaseAdmin
from pulljobs.storage.windows import IdRun, IdSpan, IdWindow, downwards, merged

BELOW: Final = "id__lt"
"""Query parameter with the id below which a page begins. The first page has none."""


class CheckedChangeList(ChangeList):
    """Change list that drops its filters if the database rejects a value, such as one with NUL."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        try:
            super().__init__(*args, **kwargs)
        except DataError as error:
            raise IncorrectLookupParameters(str(error)) from error


class KeysetChangeList(CheckedChangeList):
    """Change list that begins each page below the last id of the page before (keyset pages)."""

    below: int | None
    older: str | None
    """Query of the page with older rows, or None on the last page."""
    newest: str | None
    """Query of the first page, or None on that page itself."""
    is_cut_off: bool
    """True if the page is not full because the request has read its limit of rows.

    The page then offers to look further back.
    """

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        """Return the filtered rows of this page and of those after it, by the id in the URL.

        The id is removed from `params`, from which Django makes the links to filters. So they lead
        to the newest rows.
        """
        self.filter_params.pop(BELOW, None)
        below = self.params.pop(BELOW, None)
        self.below = None if below is None else _number(below)
        rows: QuerySet[Any] = super().get_queryset(request, exclude_parameters)
        return rows if self.below is None else rows.filter(**{BELOW: self.below})

    def get_results(self, request: HttpRequest) -> None:
        window = self.read_window(request, downwards(self.below, self.list_per_page))
        self.result_list = self.read_rows(request, window.ids)
        is_full = len(window.ids) == self.list_per_page
        self.is_cut_off = window.beyond is not None and not is_full
        beyond = window.beyond
        self.older = None if beyond is None else self.get_query_string({BELOW: beyond})
        self.newest = None if self.below is None else self.get_query_string()
        self.result_count = self.full_result_count = len(self.result_list)
        self.show_full_result_count = False
        self.show_admin_actions = bool(self.result_list)
        self.can_show_all = self.multi_page = False
        self.paginator = Paginator(self.result_list, self.list_per_page)

    def read_window(self, request: HttpRequest, span: IdSpan) -> IdWindow:
        """Return the ids of this page's rows, newest first, from the admin's method `window`."""
        listed: Any = self.model_admin
        window: IdWindow = listed.window(request, span, self.queryset)
        return window

    def read_rows(self, request: HttpRequest, ids: list[int]) -> list[Any]:
        """Return the rows with these ids, newest first."""
        rows = self.apply_select_related(self.root_queryset).filter(pk__in=ids)
        return list(rows.order_by("-pk"))


class ReadOnlyAdmin(BaseAdmin):
    """Base of admins of large tables, with rows only to view unless the subclass permits more."""

    ordering: ClassVar[tuple[str, ...]] = ("-id",)
    sortable_by = ()
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    def window(self, request: HttpRequest, span: IdSpan, rows: QuerySet[Any]) -> IdWindow:
        """Return the ids of a page's rows, newest first, and the id below which older rows may be.

        `rows` are the filtered rows. Subclasses read the ids by an index that serves their filters.
        """
        keys = list(rows.values_list("pk", flat=True)[: span.wanted + 1])
        return merged([IdRun(keys, None)], span)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return KeysetChangeList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Allow only lookups by the parameters of `list_filter`, which indexes serve."""
        return lookup in {getattr(choice, "parameter_name", None) for choice in self.list_filter}

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise IncorrectLookupParameters(str(error)) from error
