"""Base of the admins of the tables of pulljobs."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.db import DatabaseError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import URLPattern, reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

from pulljobs.admin import formats
from pulljobs.admin.links import Links
from pulljobs.conf import settings
from pulljobs.storage import schema
from pulljobs.storage.transactions import is_wait

View = Callable[..., HttpResponseBase]


class BaseAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # generic for mypy only
    """Base of the admins of rows in the jobs' database."""

    class Media:
        css: ClassVar = {"all": ["pulljobs/admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).using(settings().DATABASE)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Return the row of a page. Its attribute `links` is for read-only fields with links."""
        row: Any = super().get_object(request, object_id, from_field)
        if row is not None:
            row.links = Links(request)
        return row

    @property
    def urls(self) -> list[URLPattern]:
        """URL patterns of all pages, with views that report a database that may only be read."""
        patterns: list[URLPattern] = super().urls
        for pattern in patterns:
            pattern.callback = reporting_refusals(pattern.callback)
        return patterns


def reporting_refusals(view: View) -> View:
    """Wrap a view: if the database refuses the write of a form, show why on the next page.

    Only errors that `_explain` knows are caught, such as those of a standby.
    """

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            return view(request, *args, **kwargs)
        except DatabaseError as error:
            if request.method != "POST" or not (reason := _explain(error)):
                raise
            messages.error(request, _("The database refused a change. %s.") % reason)
            return HttpResponseRedirect(_page_before(request))

    return answer


def _explain(error: DatabaseError) -> str:
    """Return why the database refused a write and what to do, or "" for an unknown reason."""
    if is_wait(error):
        return _("A statement met its time limit (%s): try again") % str(error).partition("\n")[0]
    return schema.advice(error)


def _page_before(request: HttpRequest) -> str:
    """Return the URL of the page whose form was sent, or of the index if it is unknown."""
    before = request.headers.get("Referer", "")
    hosts = {request.get_host()}
    if url_has_allowed_host_and_scheme(before, hosts, require_https=request.is_secure()):
        return before
    return reverse("admin:index", current_app=formats.site_of(request))
