"""Pages of limit groups: lists of consumers that share one rate limit and one concurrency limit."""

from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from pulljobs import registering
from pulljobs.admin import formats
from pulljobs.admin.changelist import CheckedChangeList
from pulljobs.conf import settings
from pulljobs.models import LimitGroup


@admin.register(LimitGroup)
class LimitGroupAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # generic for mypy only
    list_display = ("name", "limits", "members", "changed_at")
    search_fields = ("name",)
    ordering: ClassVar = ("name",)
    list_per_page = 25
    fields = ("name", "max_in_flight", "rate", "rate_burst", "rate_window", "members")
    readonly_fields = ("members",)

    class Media:
        css: ClassVar = {"all": ["pulljobs/admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request).using(settings().DATABASE)
        return rows.prefetch_related("consumers__channel")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return CheckedChangeList

    def save_model(self, request: HttpRequest, obj: LimitGroup, form: Any, change: bool) -> None:
        with transaction.atomic(using=settings().DATABASE):
            obj.save(using=settings().DATABASE)
            registering.wake_members(obj)

    @admin.display(description=_("limits"))
    def limits(self, group: LimitGroup) -> str:
        return group.describe_limits() or str(_("none"))

    @admin.display(description=_("consumers"))
    def members(self, group: LimitGroup) -> SafeString:
        consumers = group.consumers.all() if group.pk else ()
        site = self.admin_site.name
        shown = [member for member in consumers if not member.deleted_at]
        links = [(formats.consumer_link(site, member),) for member in shown]
        return format_html_join(", ", "{}", links)
