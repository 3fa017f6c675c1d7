"""Base of the admins of the tables of pulljobs."""

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin import AdminSite
from django.db import DatabaseError, InterfaceError, OperationalError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

from pulljobs.admin import formats
from pulljobs.admin.links import Links
from pulljobs.conf import settings
from pulljobs.storage import schema
from pulljobs.storage.transactions import is_wait

logger = logging.getLogger(__name__)

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
        """URL patterns of all pages, with views that report errors of the database."""
        patterns: list[URLPattern] = super().urls
        for pattern in patterns:
            pattern.callback = reporting_database_errors(pattern.callback, self.admin_site)
        return patterns


def reporting_database_errors(view: View, site: AdminSite) -> View:
    """Wrap a view of an admin site, so that users read what is wrong with the database.

    If it refuses the write of a form for a reason that `_explain` knows, the next page shows a
    message. After other operational errors, such as a lost connection, the answer is a page with
    status 503. All others are raised.
    """

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            return view(request, *args, **kwargs)
        except (DatabaseError, InterfaceError) as error:
            if request.method == "POST" and (reason := _explain(error)):
                messages.error(request, _("The database refused a change. %s.") % reason)
                return HttpResponseRedirect(_page_before(request))
            if not isinstance(error, OperationalError | InterfaceError):
                raise
            return _show_outage(request, site, error)

    return answer


def _show_outage(request: HttpRequest, site: AdminSite, error: Exception) -> TemplateResponse:
    """Answer with 503, or raise an error if the page needs the same database for its user."""
    reason = str(error).partition("\n")[0]
    logger.warning("The database failed a page of the admin: %s", reason)
    context = {**site.each_context(request), "title": _("Try again later"), "reason": reason}
    return TemplateResponse(request, "admin/pulljobs/outage.html", context, status=503)


def _explain(error: Exception) -> str:
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
