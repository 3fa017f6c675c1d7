"""Pages of scheduled messages, those that wait for their time and those that were published."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from pulljobs import ids
from pulljobs.admin import formats, list_query, payloads, summaries
from pulljobs.admin.changelist import KeysetChangeList, ReadOnlyAdmin
from pulljobs.admin.filters import ChannelFilter, Choice, Choices
from pulljobs.conf import settings
from pulljobs.models import ScheduledMessage
from pulljobs.storage import nodes, scheduled
from pulljobs.storage.windows import IdSpan, IdWindow

WAITING, PUBLISHED = "waiting", "published"


class PublishedFilter(Choice):
    title, parameter_name = _("state"), "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return [(WAITING, _("waits for its time")), (PUBLISHED, _("published"))]


class ScheduledChangeList(KeysetChangeList):
    """Change list that sets two attributes of each scheduled message.

    They are `summary`, made of its payload, and `listed_at`, the time at which it was read.
    """

    def read_rows(self, request: HttpRequest, ids: list[int]) -> list[Any]:
        rows = self.root_queryset.select_related("channel").defer("payload", "headers")
        annotated = summaries.annotate_heads(rows, readable=payloads.may_read(request))
        read = list(annotated.filter(pk__in=ids).order_by("-pk"))
        now = nodes.clock(settings().DATABASE) if read else None
        for row in read:
            row.summary, row.listed_at = summaries.summarize(row), now
        return read


@admin.register(ScheduledMessage)
class ScheduledMessageAdmin(ReadOnlyAdmin):
    list_display = ("name", "summary", "status", "channel_name", "due", "made")
    list_filter = (PublishedFilter, ChannelFilter)
    search_fields = ("client_message_id",)
    search_help_text = _("The client's message id, as it was given.")
    fields = ("name", "status", "channel_name", "producer_name", "key", "priority", "content_type")
    readonly_fields = ("name", "status", "channel_name", "producer_name")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return ScheduledChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Return all rows: `window` compares the client message id in place of Django's search."""
        return queryset, False

    def window(self, request: HttpRequest, span: IdSpan, rows: QuerySet[Any]) -> IdWindow:
        asked = request.GET
        channel = asked.get("channel")
        channel_id = list_query.parse_id(channel) if channel else None
        is_published = {WAITING: False, PUBLISHED: True}.get(asked.get("state", ""))
        using, name = settings().DATABASE, asked.get("q", "").strip()
        return scheduled.window(
            using, span, channel_id=channel_id, is_published=is_published, name=name
        )

    @admin.display(description=_("client's message id"))
    def name(self, message: ScheduledMessage) -> str:
        return message.client_message_id

    @admin.display(description=_("what it does"))
    def summary(self, message: Any) -> SafeString:
        return summaries.show(message.summary)

    @admin.display(description=_("state"))
    def status(self, message: ScheduledMessage) -> SafeString:
        if message.dispatched_at is None:
            until = formats.format_time(message.dispatch_at)
            kind, text = "queued", _("waits until %s") % until
        else:
            at = formats.format_time(message.dispatched_at)
            kind, text = "delivered", _("published at %s") % at
        return format_html('<span class="pulljobs-badge pulljobs-{}">{}</span>', kind, text)

    @admin.display(description=_("channel"))
    def channel_name(self, message: ScheduledMessage) -> str:
        return str(message.channel)

    @admin.display(description=_("producer"))
    def producer_name(self, message: ScheduledMessage) -> str:
        return str(message.producer or formats.NOTHING)

    @admin.display(description=_("due"))
    def due(self, message: Any) -> SafeString:
        return formats.time_and_age(message.dispatch_at, message.listed_at)

    @admin.display(description=_("created at"))
    def made(self, message: Any) -> SafeString:
        return formats.time_and_age(ids.time_of(message.pk), message.listed_at)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show a scheduled message, with a CSP that stops scripts in its payload."""
        content = None
        if payloads.may_read(request):
            rows = ScheduledMessage.objects.using(settings().DATABASE)
            content = payloads.content_of(rows, list_query.parse_id(object_id))
        context = {"content": content, "to_read_it": payloads.PERMISSION}
        response = super().change_view(
            request, object_id, form_url, context | (extra_context or {})
        )
        response.headers.setdefault("Content-Security-Policy", payloads.page_policy())
        return response
