"""Filters in the sidebar of the lists of jobs, settlements and scheduled messages.

They only offer choices. The `window` of a list makes its conditions from the choices in the URL.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from django.contrib.admin import SimpleListFilter
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from pulljobs.admin.list_query import AGES
from pulljobs.conf import settings
from pulljobs.models import Channel, Consumer
from pulljobs.models.jobs import REASONS
from pulljobs.states import LIVE, SETTLED, State

Choices = list[tuple[str, Any]]
Rows = QuerySet[Any]


class Choice(SimpleListFilter):
    """Filter that leaves the queryset as it is: the `window` of its list applies the choice."""

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        return queryset


class StateFilter(Choice):
    title, parameter_name = _("state"), "state"
    states: ClassVar = LIVE | {State.DELIVERED}

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return [(state.value, state.value) for state in State if state in self.states]


class SettledStateFilter(StateFilter):
    states: ClassVar = SETTLED


class ReasonFilter(Choice):
    title, parameter_name = _("reason"), "reason"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return REASONS


class ChannelFilter(Choice):
    title, parameter_name = _("channel"), "channel"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        channels = Channel.objects.using(settings().DATABASE).order_by("name")
        return [(str(channel.pk), channel.name) for channel in channels]


class ConsumerFilter(Choice):
    title, parameter_name = _("consumer"), "consumer"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        consumers = Consumer.objects.using(settings().DATABASE).select_related("channel")
        return [
            (str(consumer.pk), f"{consumer.channel} / {consumer}")
            for consumer in consumers.order_by("channel__name", "name")
        ]


class CreatedFilter(Choice):
    title, parameter_name = _("time created"), "age"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return [(value, age.title) for value, age in AGES.items()]


class SettledFilter(CreatedFilter):
    title = _("time settled")


class KeyFilter(Choice):
    """Filter by a key, with a text field because there are too many keys to list."""

    title, parameter_name = _("key"), "key"
    template = "admin/pulljobs/key_filter.html"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return [("", "")]

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        others = changelist.get_filters_params()
        yield {
            "value": self.value() or "",
            "others": [
                (name, values[-1]) for name, values in others.items() if name != self.parameter_name
            ],
            "without": changelist.get_query_string(remove=[self.parameter_name]),
        }
