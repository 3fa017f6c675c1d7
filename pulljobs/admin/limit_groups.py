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
from pulljobs.admin.base import BaseAdmin
from pulljobs.admin.changelist import CheckedChangeList
from pulljobs.admin.guarded_forms import GuardedForm
from pulljobs.admin.links import Links, consumer_link
from pulljobs.conf import settings
from pulljobs.models import LimitGroup


class GroupChangeList(CheckedChangeList):
    """Change list that sets `links` of its rows, which their column of consumers needs."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        links = Links(request)
        for group in self.result_list:
            group.links = links


@admin.register(LimitGroup)
class LimitGroupAdmin(BaseAdmin):
    form = GuardedForm
    list_display = ("name", "limits", "members", "changed_at")
    search_fields = ("name",)
    ordering: ClassVar = ("name",)
    list_per_page = 25
    fields = ("name", "max_in_flight", "rate", "rate_burst", "rate_window", "members")
    readonly_fields = ("members",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.prefetch_related("consumers__channel")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return GroupChangeList

    def save_model(self, request: HttpRequest, obj: LimitGroup, form: Any, change: bool) -> None:
        with transaction.atomic(using=settings().DATABASE):
            obj.save(using=settings().DATABASE)
            registering.wake_members(obj)

    @admin.display(description=_("limits"))
    def limits(self, group: LimitGroup) -> str:
        return group.describe_limits() or str(_("none"))

    @admin.display(description=_("consumers"))
    def members(self, group: Any) -> SafeString:
        consumers = group.consumers.all() if group.pk else ()
        shown = [member for member in consumers if not member.deleted_at]
        links = [(consumer_link(group.links, member),) for member in shown]
        return format_html_join(", ", "{}", links)
