"""Admin of the model Schedule. Each write calls `acting`, which adds it to the audit trail."""

from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import flatten_fieldsets
from django.contrib.admin.views.main import ChangeList
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from pulljobs.admin import formats as core_formats
from pulljobs.admin import list_query, payloads
from pulljobs.admin.action_pages import opened_at
from pulljobs.admin.changelist import ReadOnlyAdmin
from pulljobs.admin.links import Links
from pulljobs.conf import settings
from pulljobs.errors import PulljobsError, UnknownSchedule
from pulljobs.schedules import acting, reading
from pulljobs.schedules.admin import actions, backfill, formats
from pulljobs.schedules.admin.forms import CONTENT, ScheduleForm, read_text
from pulljobs.schedules.admin.lists import (
    OriginFilter,
    ScheduleChangeList,
    ScheduleChannelFilter,
    ScheduleStateFilter,
)
from pulljobs.schedules.models import Schedule
from pulljobs.storage import nodes

FIELDSETS: Final = (
    (None, ("name", "channel")),
    (_("Rule"), ("cron", "every", "timezone", "starts_at", "ends_at", "jitter")),
    (_("Slots that can't fire in time"), ("missed", "missed_bound", "misfire_grace", "overlap")),
    (_("Message"), (*CONTENT, "key", "priority", "cost", "producer")),
)
ACTIONS: Final = {
    "fire": actions.fire,
    "pause": actions.pause,
    "resume": actions.resume,
    "backfill": backfill.backfill,
}
"""Views of the actions on one schedule, by the last part of their URL paths."""


@admin.register(Schedule)
class ScheduleAdmin(ReadOnlyAdmin):
    form = ScheduleForm
    list_display = ("name", "rule_text", "status", "channel", "due", "last")
    list_filter = (ScheduleStateFilter, OriginFilter, ScheduleChannelFilter)
    list_per_page = 50
    search_fields = ("name",)
    search_help_text = _("A part of the name.")
    action_form = actions.ScheduleActionForm
    actions = ("pause_selected", "resume_selected", "fire_selected")

    class Media:
        css: ClassVar = {"all": ["pulljobs_schedules/admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return all schedules. Their payloads are read only when a page shows one."""
        rows: QuerySet[Any] = super().get_queryset(request).defer("payload")
        return rows

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return ScheduleChangeList

    @admin.display(description=_("rule"))
    def rule_text(self, row: Schedule) -> SafeString:
        return formats.show_rule(row)

    @admin.display(description=_("state"))
    def status(self, row: Any) -> SafeString:
        return formats.show_state(row, row.listed_at)

    @admin.display(description=_("channel"))
    def channel(self, row: Schedule) -> str:
        return row.channel_name

    @admin.display(description=_("next slot"))
    def due(self, row: Any) -> SafeString | str:
        if row.next_slot is None:
            return core_formats.NOTHING
        return core_formats.time_and_age(row.next_slot, row.listed_at)

    @admin.display(description=_("last slot"))
    def last(self, row: Schedule) -> SafeString | str:
        return formats.show_last(row)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self._may(request, "add")

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self._may(request, "change")

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self._may(request, "delete")

    def has_pause_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and actions.may(request, "pause")

    def has_fire_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and actions.may(request, "fire")

    def _may(self, request: HttpRequest, verb: str) -> bool:
        return request.user.has_perm(f"pulljobs_schedules.{verb}_schedule")

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        own = [
            path(
                f"<int:id>/{name}/",
                view(partial(act, self)),
                name=f"pulljobs_schedules_schedule_{name}",
            )
            for name, act in ACTIONS.items()
        ]
        return [*own, *super().get_urls()]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields of the form: none for users who may only read.

        For a row, the fields in CONTENT are left out without the permission to see payloads, and
        payload and content type if the payload is not text.
        """
        if obj is not None and not self.has_change_permission(request, obj):
            return []
        hidden: tuple[str, ...] = ()
        if obj is not None and not payloads.may_read(request):
            hidden = CONTENT
        elif obj is not None and read_text(obj) is None:
            hidden = CONTENT[:2]
        return [
            (title, {"fields": [name for name in fields if name not in hidden]})
            for title, fields in FIELDSETS
        ]

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        """Return ScheduleForm with only the fields that the page shows.

        A field that the page does not show would come back empty and clear its option.
        """
        form: Any = super().get_form(request, obj, change, **{**kwargs, "fields": []})
        shown = flatten_fieldsets(self.get_fieldsets(request, obj))
        form.base_fields = {name: form.base_fields[name] for name in shown}
        return form

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        by = request.user.get_username()
        if not change:
            row = acting.create(by=by, **form.options())
        elif options := form.changed_options():
            row = acting.update(obj.name, by=by, **options)
        else:
            return
        obj.__dict__.update(row.__dict__)

    def delete_model(self, request: HttpRequest, obj: Schedule) -> None:
        self._delete(request, obj.name)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        for name in queryset.values_list("name", flat=True):
            self._delete(request, name)

    def _delete(self, request: HttpRequest, name: str) -> None:
        with suppress(UnknownSchedule):  # Another user has just deleted it.
            acting.delete(name, by=request.user.get_username())

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show or save the form, with a policy that allows only the site's own scripts.

        Payloads on the page come from outside. An error of `acting`, for example because another
        user has just deleted the row, is shown on the next page.
        """
        try:
            response = super().changeform_view(request, object_id, form_url, extra_context)
        except PulljobsError as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(request.get_full_path())
        response.headers.setdefault("Content-Security-Policy", payloads.page_policy())
        return response

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        row = context.get("original")
        context["preview"] = context["adminform"].form.preview()
        if row is not None:
            context |= self._about(request, row)
        return super().render_change_form(request, context, *args, **kwargs)

    def _about(self, request: HttpRequest, row: Schedule) -> dict[str, Any]:
        now = nodes.clock(settings().DATABASE)
        return {
            **self._shown_content(request, row),
            "state": formats.show_state(row, now),
            "due": core_formats.time_and_age(row.next_slot, now) if row.next_slot else None,
            "last": core_formats.format_time(row.last_slot),
            "outcome": formats.describe_outcome(row),
            "paused": formats.describe_pause_of(row, now),
            "upcoming": reading.upcoming(row),
            "problem": row.rule.problem,
            "history": formats.read_history(row, request.GET.get("before", "")),
            "may_pause": self.has_pause_permission(request),
            "may_fire": self.has_fire_permission(request),
            "may_see_jobs": Links(request).jobs() is not None,
        }

    def _shown_content(self, request: HttpRequest, row: Schedule) -> dict[str, Any]:
        """Return options and message for the template, unless the form has fields for them."""
        facts = [] if self.has_change_permission(request, row) else formats.list_facts(row)
        is_readable = payloads.may_read(request)
        has_field = not facts and read_text(row) is not None
        rows = Schedule.objects.using(settings().DATABASE)
        return {
            "facts": facts,
            "is_masked": not is_readable,
            "to_read_it": payloads.PERMISSION,
            "content": payloads.content_of(rows, row.pk) if is_readable and not has_field else None,
        }

    @admin.action(description=_("Pause until resumed"), permissions=["pause"])
    def pause_selected(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        self._act_on_each(request, lambda name, by: acting.pause(name, None, by=by))

    @admin.action(description=_("Resume"), permissions=["pause"])
    def resume_selected(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        self._act_on_each(request, lambda name, by: acting.resume(name, by=by))

    @admin.action(description=_("Fire now"), permissions=["fire"])
    def fire_selected(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        opened = opened_at(request)
        self._act_on_each(request, lambda name, by: acting.fire_now(name, by=by, opened_at=opened))

    def _act_on_each(self, request: HttpRequest, act: Any) -> None:
        """Call `act(name, operator)` for each selected schedule, and show errors on the next page.

        Selected schedules that no longer match the filter of the list are included.
        """
        chosen = map(list_query.parse_id, request.POST.getlist(ACTION_CHECKBOX_NAME))
        rows = Schedule.objects.using(settings().DATABASE).filter(pk__in=list(chosen))
        done = []
        for name in rows.order_by("name").values_list("name", flat=True):
            try:
                act(name, request.user.get_username())
            except PulljobsError as error:
                messages.warning(request, _("Schedule %s") % f"{name}: {error}")
            else:
                done.append(name)
        if done:
            messages.success(request, _("Done for %s.") % ", ".join(done))
