"""Pages of batches: a list, and a page with the progress and the members."""

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from pulljobs import ids
from pulljobs.admin import formats
from pulljobs.admin.changelist import KeysetChangeList, ReadOnlyAdmin
from pulljobs.admin.links import Links, linked
from pulljobs.workflows.admin import batch_actions, job_links
from pulljobs.workflows.batches import reading
from pulljobs.workflows.models import Batch

GROUPED: Final = 1_000
"""Largest number of dead members that are read and grouped by their errors."""
SHOWN: Final = 20
"""Largest number of errors, and of inner batches, on a page."""
KINDS: Final = {
    "open": "queued",
    "closed": "inflight",
    "cancelled": "dead",
    "completed": "delivered",
}
"""CSS class of the badge for each state of a batch."""


class CompletionFilter(admin.SimpleListFilter):
    """Filter of the list that selects complete batches, or those that are not complete."""

    title = _("state")
    parameter_name = "live"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("yes", _("not complete")), ("no", _("complete"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() is None:
            return queryset
        return queryset.filter(completed_at__isnull=self.value() == "yes")


class BatchChangeList(KeysetChangeList):
    """List of batches, which reads the exact counts of all batches on a page in one statement."""

    def read_rows(self, request: HttpRequest, ids: list[int]) -> list[Any]:
        rows = super().read_rows(request, ids)
        views = {view.id: view for view in reading.read_views(ids)}
        for row in rows:
            row.view = views.get(row.pk)
        return [row for row in rows if row.view is not None]


class ErrorGroup(NamedTuple):
    """Dead members of a batch with the same reason and the same first line of their error."""

    members: int
    error: str
    reason: str
    job: SafeString | str
    """Link to the first member of the group."""


@admin.register(Batch)
class BatchAdmin(ReadOnlyAdmin):
    # No column has the name of a field: the list would show the field, which is merged later.
    list_display = (
        "xid",
        "name",
        "status",
        "progress",
        "all_members",
        "all_dead",
        "round",
        "created",
    )
    list_filter = (CompletionFilter,)
    list_per_page = 50
    fields = ()

    class Media:
        css: ClassVar = {"all": ["pulljobs/admin.css", "pulljobs_workflows/admin.css"]}

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return BatchChangeList

    @admin.display(description=_("batch"))
    def xid(self, row: Batch) -> str:
        return ids.encode(row.pk)

    @admin.display(description=_("state"))
    def status(self, row: Any) -> SafeString:
        return badge(row.view)

    @admin.display(description=_("progress"))
    def progress(self, row: Any) -> SafeString:
        return draw_bar(row.view)

    @admin.display(description=_("members"))
    def all_members(self, row: Any) -> str:
        return f"{row.view.members:,}"

    @admin.display(description=_("dead"))
    def all_dead(self, row: Any) -> str:
        return f"{row.view.dead:,}"

    @admin.display(description=_("created"))
    def created(self, row: Batch) -> str:
        return formats.format_time(row.created_at)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        own = [
            path(
                f"<int:id>/{name}/",
                view(partial(batch_actions.ask, self, name)),
                name=f"pulljobs_workflows_batch_{name}",
            )
            for name in batch_actions.ACTIONS
        ]
        return [*own, *super().get_urls()]

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        context |= _describe(request, reading.get(context["original"].pk))
        return super().render_change_form(request, context, *args, **kwargs)


def badge(view: reading.BatchView) -> SafeString:
    """Render the state of a batch as a coloured label."""
    return format_html(
        '<span class="pulljobs-badge pulljobs-{}">{}</span>', KINDS[view.state], view.state
    )


def draw_bar(view: reading.BatchView) -> SafeString:
    """Render the progress of a batch: a bar of delivered and dead members, and the percentage."""
    delivered, dead = _share(view, view.delivered), _share(view, view.dead)
    return format_html(
        '<span class="pulljobs-progress"><svg viewBox="0 0 100 10" preserveAspectRatio="none"'
        ' aria-hidden="true"><rect width="100" height="10" class="pulljobs-progress-track"/>'
        '<rect width="{}" height="10" class="pulljobs-progress-done"/>'
        '<rect x="{}" width="{}" height="10" class="pulljobs-progress-dead"/></svg>'
        "<span>{} %</span></span>",
        f"{delivered:.1f}",
        f"{delivered:.1f}",
        f"{dead:.1f}",
        f"{view.progress:.1f}",
    )


def _share(view: reading.BatchView, members: int) -> float:
    return 100 * members / view.members if view.members else 0.0


def _describe(request: HttpRequest, view: reading.BatchView) -> dict[str, Any]:
    in_flight = min(view.live, reading.count_in_flight(view.id))
    dead = reading.read_dead(view.id, limit=GROUPED)
    nested = view.nested(SHOWN + 1)
    return {
        "batch": view,
        "title": _("Batch %s") % view.name,
        "state": badge(view),
        "bar": draw_bar(view),
        "in_flight": in_flight,
        "queued": view.live - in_flight,
        "groups": group_by_error(request, dead),
        "is_more_dead": len(dead) == GROUPED,
        "nested": [(job_links.link_batch(request, each.id, each.name), badge(each), draw_bar(each))
                   for each in nested[:SHOWN]],
        "is_more_nested": len(nested) > SHOWN,
        "parent": None if view.parent_id is None else job_links.link_batch(request, view.parent_id),
        "run": None if view.run_id is None else job_links.link_run(request, view.run_id),
        "actions": [
            (name, action.label)
            for name, action in batch_actions.ACTIONS.items()
            if action.is_possible(view) and batch_actions.may(request, action)
        ],
    }  # fmt: skip


def group_by_error(request: HttpRequest, dead: Iterable[reading.DeadMember]) -> list[ErrorGroup]:
    """Return the `SHOWN` most frequent pairs of reason and first line of the error."""
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], int] = {}
    for member in dead:
        group = (member.reason, (member.error or "").strip().partition("\n")[0])
        counts[group] += 1
        first.setdefault(group, member.job_id)
    return [
        ErrorGroup(count, error, reason, _link_job(request, first[reason, error]))
        for (reason, error), count in counts.most_common(SHOWN)
    ]


def _link_job(request: HttpRequest, job_id: int) -> SafeString | str:
    return linked(Links(request).job(job_id), ids.encode(job_id))
