"""Choices of the lists. None asks the job table or the archive what there is to choose from."""

from datetime import timedelta
from typing import Any, ClassVar, Final

from django.contrib.admin import SimpleListFilter
from django.db.models import BigIntegerField, F, Func, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.models import Channel, Consumer, Lease
from pulljobs.states import LIVE, SETTLED, Reason, State

Choices = list[tuple[str, Any]]
Rows = QuerySet[Any]

SETTLED_WITHIN: Final = {"1": _("the last 24 hours"), "7": _("the last 7 days")}


class Choice(SimpleListFilter):
    """What is none of the choices matches nothing."""

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        value = self.value()
        if value is None:
            return queryset
        known = value in {choice for choice, _title in self.lookup_choices}
        return self.narrow(queryset, value) if known else queryset.none()

    def narrow(self, queryset: Rows, value: str) -> Rows:
        return queryset.filter(**{self.parameter_name or "": value})


class StateFilter(Choice):
    title, parameter_name = _("state"), "state"
    states: ClassVar = LIVE

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return [(state.value, state.value) for state in State if state in self.states]

    def narrow(self, queryset: Rows, value: str) -> Rows:
        """Few are INFLIGHT, and their leases name them; what is DEAD is in an index of its own."""
        if value == State.INFLIGHT:
            queryset = queryset.filter(id__in=Lease.objects.values(held=_JobIds(F("job_ids"))))
        if value == State.DEAD:
            queryset = queryset.filter(reason__isnull=False)
        return super().narrow(queryset, value)


class SettledStateFilter(Choice):
    title, parameter_name = _("state"), "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return [(state.value, state.value) for state in State if state in SETTLED]


class ReasonFilter(Choice):
    title, parameter_name = _("reason"), "reason"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return [(reason.value, reason.value.replace("_", " ")) for reason in Reason]


class ChannelFilter(Choice):
    title, parameter_name = _("channel"), "channel"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        channels = Channel.objects.using(settings().DATABASE).order_by("name")
        return [(str(channel.pk), channel.name) for channel in channels]

    def narrow(self, queryset: Rows, value: str) -> Rows:
        consumers = Consumer.objects.using(settings().DATABASE).filter(channel=int(value))
        return queryset.filter(consumer__in=list(consumers.values_list("pk", flat=True)))


class ConsumerFilter(Choice):
    title, parameter_name = _("consumer"), "consumer"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        consumers = Consumer.objects.using(settings().DATABASE).select_related("channel")
        return [
            (str(consumer.pk), f"{consumer.channel} / {consumer}")
            for consumer in consumers.order_by("channel__name", "name")
        ]


class SettledFilter(Choice):
    """By the id, so that only the partitions of those days are read."""

    title, parameter_name = _("settled within"), "days"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return list(SETTLED_WITHIN.items())

    def narrow(self, queryset: Rows, value: str) -> Rows:
        since = timezone.now() - timedelta(days=int(value))
        return queryset.filter(id__gte=ids.first_of(since))


class _JobIds(Func):
    function = "unnest"
    set_returning = True
    output_field = BigIntegerField()
