"""Pages of clients that pull over HTTP, by the names that they send with their requests."""

from typing import Any, ClassVar, Final

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from pulljobs.admin import formats, list_query
from pulljobs.admin.changelist import ReadOnlyAdmin
from pulljobs.admin.filters import ConsumerFilter
from pulljobs.admin.links import Links, consumer_link
from pulljobs.conf import settings
from pulljobs.models import Consumer, HttpClient

SHOWN: Final = 10
"""Largest number of clients on the page of a consumer."""


class ClientConsumerFilter(ConsumerFilter):
    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.value()
        return queryset.filter(consumer_id=list_query.parse_id(chosen)) if chosen else queryset


@admin.register(HttpClient)
class HttpClientAdmin(ReadOnlyAdmin):
    ordering: ClassVar[tuple[str, ...]] = ("-seen_at", "-pk")
    list_display = ("name", "subscription", "place", "version", "began", "seen")
    list_filter = (ClientConsumerFilter,)
    list_select_related = ("consumer__channel",)
    list_per_page = 100
    search_fields = ("name", "host", "address")
    search_help_text = _("Id, host or address of a client.")
    fields = ("name", "subscription_link", "host", "address", "version", "began", "seen")
    readonly_fields = ("subscription_link", "version", "began", "seen")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request).annotate(now=Now())
        return rows

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return ChangeList

    @admin.display(description=_("channel / consumer"))
    def subscription(self, client: HttpClient) -> str:
        return f"{client.consumer.channel} / {client.consumer}"

    @admin.display(description=_("channel / consumer"))
    def subscription_link(self, client: Any) -> SafeString | str:
        return consumer_link(client.links, client.consumer)

    @admin.display(description=_("pulls from"))
    def place(self, client: HttpClient) -> SafeString:
        text = '<bdi>{}</bdi> <span class="pulljobs-brief">{}</span>'
        return format_html(text, client.host or formats.NOTHING, client.address)

    @admin.display(description=_("version"))
    def version(self, client: HttpClient) -> SafeString:
        return format_html("<bdi>{}</bdi>", client.agent or formats.NOTHING)

    @admin.display(description=_("first request"))
    def began(self, client: Any) -> SafeString:
        return formats.time_and_age(client.first_seen_at, client.now)

    @admin.display(description=_("last request"))
    def seen(self, client: Any) -> SafeString:
        return formats.time_and_age(client.seen_at, client.now)


def newest_of(consumer: Consumer, request: HttpRequest) -> list[HttpClient]:
    """Return at most SHOWN clients of a consumer, those with the latest request first.

    The list is empty if the user may not see clients, or the site has no pages of them.
    """
    if Links(request).page(HttpClient, "changelist") is None:
        return []
    rows = HttpClient.objects.using(settings().DATABASE).filter(consumer=consumer)
    return list(rows.annotate(now=Now()).order_by("-seen_at", "-pk")[:SHOWN])
