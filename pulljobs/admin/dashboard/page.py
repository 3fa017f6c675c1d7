"""View of the dashboard, as a page of a model without table, so that admin sites list it."""

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache

from pulljobs.admin.base import reporting_database_errors
from pulljobs.admin.dashboard import contents, ranges
from pulljobs.admin.links import Links
from pulljobs.models import Dashboard

REFRESH_SECONDS = 5


@admin.register(Dashboard)
class DashboardAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # generic for mypy only
    """Admin that shows the dashboard in place of a list of rows.

    A project with a site of its own registers it: `site.register(Dashboard, DashboardAdmin)`.
    """

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(never_cache(self.page))
        shown = reporting_database_errors(view, self.admin_site)
        return [path("", shown, name="pulljobs_dashboard_changelist")]

    def page(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        links = Links(request)
        chosen = ranges.choose(request.GET.get("range"))
        shown = contents.read_contents(chosen, request.GET.get("consumer"), links)
        request.current_app = self.admin_site.name  # as the admin's own pages
        context = {
            **self.admin_site.each_context(request),
            "title": _("Dashboard"),
            "opts": self.opts,
            "shown": shown,
            "refresh_seconds": REFRESH_SECONDS,
        }
        return TemplateResponse(request, "admin/pulljobs/dashboard/page.html", context)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
