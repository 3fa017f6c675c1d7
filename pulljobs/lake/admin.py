"""Admin pages of the rollups, read-only."""

from typing import Any, Final

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import OuterRef, QuerySet, Subquery
from django.forms import BaseInlineFormSet
from django.http import HttpRequest
from django.utils.functional import cached_property

from pulljobs.admin import formats, list_query
from pulljobs.admin.changelist import CheckedChangeList, ReadOnlyAdmin
from pulljobs.admin.filters import ConsumerFilter
from pulljobs.lake.models import ErrorFingerprint, HotKey, NodeCost, Rollup, RollupRun
from pulljobs.lake.models.rollups import MEASURES, QUANTILES
from pulljobs.models import Channel, Consumer, Node

GONE: Final = "deleted"
SHOWN_NODES: Final = 100


class RollupInline(admin.TabularInline):  # type: ignore[type-arg]  # generic for mypy only
    """Base of the read-only tables on the page of a rollup: its keys, errors and nodes."""

    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class HotKeys(RollupInline):
    model = HotKey
    fields = ("rank", "key", "jobs")
    verbose_name_plural = "hot keys"


class Errors(RollupInline):
    model = ErrorFingerprint
    fields = ("jobs", "reason", "error", "job")
    readonly_fields = ("error", "job")
    verbose_name_plural = "errors"

    @admin.display(description="such as")
    def error(self, fingerprint: ErrorFingerprint) -> str:
        return str(fingerprint) or formats.NOTHING

    @admin.display(description="sample job")
    def job(self, fingerprint: ErrorFingerprint) -> str:
        return str(fingerprint.sample_job)


class FirstNodes(BaseInlineFormSet):  # type: ignore[type-arg]  # generic for mypy only
    """Formset of the `SHOWN_NODES` nodes of a rollup with the longest run times.

    Each start of a process is a node of its own, so a month may have thousands.
    """

    @cached_property
    def _first(self) -> QuerySet[Any]:
        every: QuerySet[Any] = super().get_queryset()
        return every[:SHOWN_NODES]

    def get_queryset(self) -> QuerySet[Any]:
        return self._first


class NodeCosts(RollupInline):
    model = NodeCost
    formset = FirstNodes
    fields = ("node", "jobs", "dead", "run_seconds")
    readonly_fields = ("node",)
    verbose_name_plural = f"nodes, the {SHOWN_NODES} that ran longest"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        named: QuerySet[Any] = super().get_queryset(request).annotate(node_name=_name(Node, "node"))
        return named

    @admin.display(description="node")
    def node(self, cost: Any) -> str:
        return str(cost.node_name or cost.node_id or formats.NOTHING)


class RollupConsumerFilter(ConsumerFilter):
    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset if value is None else queryset.filter(consumer=list_query.parse_id(value))


@admin.register(Rollup)
class RollupAdmin(ReadOnlyAdmin):
    ordering = ("-starts_at",)
    list_display = (
        "starts", "period", "subscription", "published", "delivered", "dead", "retries",
        "redeliveries", "waits", "runs",
    )  # fmt: skip
    list_filter = ("period", RollupConsumerFilter)
    list_per_page = 100
    inlines = (HotKeys, Errors, NodeCosts)
    fieldsets = (
        (None, {"fields": ("period", "starts", "subscription")}),
        (
            "Jobs",
            {
                "fields": (
                    "published", "delivered", "dead", "dead_by_reason", "retries", "redeliveries",
                    "duplicates", "settled_again", "deliveries_a_second",
                )
            },
        ),
        ("Seconds", {"fields": ("waits", "runs", "totals", "run_seconds", "slowest")}),
    )  # fmt: skip
    readonly_fields = (
        "starts",
        "subscription",
        "deliveries_a_second",
        "waits",
        "runs",
        "totals",
        "slowest",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Add the current names of channel and consumer, and leave out the sketches.

        A name is NULL if its row was deleted, because rollups are kept longer.
        """
        rows: QuerySet[Any] = (
            super()
            .get_queryset(request)
            .annotate(
                channel_name=_name(Channel, "channel"), consumer_name=_name(Consumer, "consumer")
            )
        )
        return rows.defer(*(f"{name}_sketch" for name in (*MEASURES, "keys")))

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return CheckedChangeList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        return lookup in ("period__exact", "consumer")

    @admin.display(description="from (UTC)")
    def starts(self, rollup: Rollup) -> str:
        return f"{rollup.starts_at:%Y-%m-%d %H:%M}"

    @admin.display(description="channel / consumer")
    def subscription(self, rollup: Any) -> str:
        return f"{rollup.channel_name or GONE} / {rollup.consumer_name or GONE}"

    @admin.display(description="deliveries a second")
    def deliveries_a_second(self, rollup: Rollup) -> str:
        return f"{rollup.throughput:.3f}"

    @admin.display(description="wait p50, p95, p99")
    def waits(self, rollup: Rollup) -> str:
        return _times(rollup, "wait")

    @admin.display(description="run p50, p95, p99")
    def runs(self, rollup: Rollup) -> str:
        return _times(rollup, "run")

    @admin.display(description="total p50, p95, p99")
    def totals(self, rollup: Rollup) -> str:
        return _times(rollup, "total")

    @admin.display(description="slowest run")
    def slowest(self, rollup: Rollup) -> str:
        if rollup.slowest_seconds is None:
            return formats.NOTHING
        return f"{rollup.slowest_seconds:.3f}, job {rollup.slowest_job}"


@admin.register(RollupRun)
class RollupRunAdmin(ReadOnlyAdmin):
    list_display = ("number", "until", "settlements", "hours", "finished")

    @admin.display(description="id")
    def number(self, run: RollupRun) -> str:
        return str(run.pk)

    @admin.display(description="known until")
    def until(self, run: RollupRun) -> str:
        return formats.format_time(run.known_until)

    @admin.display(description="finished at")
    def finished(self, run: RollupRun) -> str:
        return formats.format_time(run.finished_at)


def _name(model: type[Channel | Consumer | Node], field: str) -> Subquery:
    return Subquery(model._default_manager.filter(pk=OuterRef(f"{field}_id")).values("name"))


def _times(rollup: Rollup, measure: str) -> str:
    times = [getattr(rollup, f"{measure}_p{quantile}") for quantile in QUANTILES]
    return formats.NOTHING if None in times else ", ".join(f"{seconds:.3f}" for seconds in times)
