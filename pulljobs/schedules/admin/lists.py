"""List of schedules in the admin, and its filters. Pages are found by id, not by offset."""

from typing import Any, Final

from django.contrib.admin import SimpleListFilter
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from pulljobs.admin.changelist import KeysetChangeList
from pulljobs.admin.filters import Choices
from pulljobs.conf import settings
from pulljobs.models import Channel
from pulljobs.schedules.models import Schedule
from pulljobs.storage import nodes

PAUSED: Final = Q(paused_at__isnull=False) & (
    Q(paused_until__isnull=True) | Q(paused_until__gt=Now())
)
STATES: Final = {
    "active": Q(failures=0, next_slot__isnull=False) & ~PAUSED,
    "paused": PAUSED,
    "refused": Q(failures__gt=0) & ~PAUSED,
    "ended": Q(failures=0, next_slot__isnull=True) & ~PAUSED,
}
"""Condition on rows for each state that `reading.state_of` returns."""
ORIGINS: Final = {"code": Q(is_declared=True), "user": Q(is_declared=False)}


class ScheduleChangeList(KeysetChangeList):
    """List of schedules. Rows get `listed_at`, the database's time, from which ages are shown."""

    def read_rows(self, request: HttpRequest, ids: list[int]) -> list[Any]:
        rows: QuerySet[Any] = self.root_queryset.defer("headers")
        read = list(rows.filter(pk__in=ids).order_by("-pk"))
        now = nodes.clock(settings().DATABASE) if read else None
        for row in read:
            row.listed_at = now
        return read


class ConditionFilter(SimpleListFilter):
    """Filter of a list by a condition for each choice. An unknown choice selects no row."""

    def condition(self, choice: str) -> Q | None:
        """Return the condition of a choice, or None if there is no such choice."""
        raise NotImplementedError

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[Schedule]
    ) -> QuerySet[Schedule] | None:
        choice = self.value()
        if choice is None:
            return queryset
        condition = self.condition(choice)
        return queryset.none() if condition is None else queryset.filter(condition)


class ScheduleStateFilter(ConditionFilter):
    title, parameter_name = _("state"), "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return [
            ("active", _("active")),
            ("paused", _("paused")),
            ("refused", _("refused: it can't publish")),
            ("ended", _("ended: no slot will follow")),
        ]

    def condition(self, choice: str) -> Q | None:
        return STATES.get(choice)


class OriginFilter(ConditionFilter):
    title, parameter_name = _("origin"), "origin"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return [("code", _("declared in code")), ("user", _("created at run time"))]

    def condition(self, choice: str) -> Q | None:
        return ORIGINS.get(choice)


class ScheduleChannelFilter(ConditionFilter):
    title, parameter_name = _("channel"), "channel"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        channels = Channel.objects.using(settings().DATABASE).order_by("name")
        return [(name, name) for name in channels.values_list("name", flat=True)]

    def condition(self, choice: str) -> Q | None:
        return Q(channel_name=choice) if "\x00" not in choice else None
