"""List and pages of live jobs, with actions on selected jobs and on all jobs of a list.

The list shows archived jobs as well, to users who may see the archive.
"""

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from pulljobs import ids
from pulljobs.admin import formats, list_query, manyjobs, operations, payloads, search
from pulljobs.admin.columns import JobRowsAdmin
from pulljobs.admin.filters import (
    ChannelFilter,
    ConsumerFilter,
    CreatedFilter,
    KeyFilter,
    ReasonFilter,
    StateFilter,
)
from pulljobs.admin.search import SearchedRange
from pulljobs.conf import settings
from pulljobs.diagnosis import explain, timeline
from pulljobs.models import ArchivedJob, Job
from pulljobs.states import LIVE, Event, State
from pulljobs.storage import all_jobs, progress
from pulljobs.storage.selecting import Selection
from pulljobs.storage.windows import IdSpan, IdWindow

Action = tuple[Callable[..., HttpResponse | None], str, str]
BUTTON = "_event"
COUNTS = ("retry_count", "deliveries")
CHECKBOX = '<input type="checkbox" name="{}" value="{}" class="action-select" aria-label="{}">'


@admin.register(Job)
class JobAdmin(JobRowsAdmin):
    list_display = ("xid", "summary", "status", "subscription", "attempts", "made")
    list_filter = (
        StateFilter,
        ReasonFilter,
        CreatedFilter,
        ChannelFilter,
        ConsumerFilter,
        KeyFilter,
    )
    search_fields = ("id",)
    fieldsets = (
        (
            None,
            formats.in_two_columns("xid", "number", "state_badge", "why", "last_error", "holder"),
        ),
        (
            "Delivery",
            formats.in_two_columns(
                "subscription_link", "key", "priority", "cost", "incremental_timeout"
            ),
        ),
        (
            "Progress",
            formats.in_two_columns("created", "due", "claimed", "last_run", *COUNTS, "reported"),
        ),
    )
    readonly_fields = (
        "xid",
        "number",
        "state_badge",
        "why",
        "last_error",
        "holder",
        "subscription_link",
        "created",
        "due",
        "claimed",
        "last_run",
        "reported",
    )

    def window(self, request: HttpRequest, span: IdSpan, rows: QuerySet[Any]) -> IdWindow:
        return all_jobs.window(settings().DATABASE, _listed(request), span)

    def search(self, request: HttpRequest, span: IdSpan) -> SearchedRange:
        using, meant = settings().DATABASE, _listed(request)
        archived = State.DELIVERED in meant.states
        return search.search(
            request,
            span,
            lambda term: list_query.find_jobs(term, meant),
            lambda at: all_jobs.window(using, meant, at),
            lambda read, query: all_jobs.find_hits(using, read, query, archived=archived),
        )

    def rows_of(self, request: HttpRequest, ids: list[int]) -> list[Job | ArchivedJob]:
        live = self.get_queryset(request).select_related(*self.list_select_related)
        rows = ArchivedJob.objects.using(settings().DATABASE)
        archived = rows.select_related(*self.list_select_related)
        return all_jobs.read_rows(live, archived if may_see_archive(request) else None, ids)

    def action_checkbox(self, obj: Any) -> SafeString:
        """Render the checkbox that selects a live job for actions. An archived job has none.

        Django's method renders a template for each row, which takes a fifth of the time of a page.
        """
        if not isinstance(obj, Job):
            return SafeString("&nbsp;")
        label = _("Select this object for an action - {}").format(obj)
        return format_html(CHECKBOX, ACTION_CHECKBOX_NAME, obj.pk, label)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fieldsets without fields that mean nothing in the job's state.

        For example, a queued job has no holder.
        """
        absent = {
            State.QUEUED: {"holder"},
            State.INFLIGHT: {"why"},
            State.DEAD: {"holder", "why"},
        }[State(obj.state)]
        return [
            (
                title,
                {**options, "fields": [each for each in options["fields"] if each not in absent]},
            )
            for title, options in self.fieldsets
        ]

    @admin.display(description="id")
    def number(self, job: Job) -> str:
        """Return the id without the separators of thousands that a locale may have."""
        return str(job.pk)

    @admin.display(description="state")
    def state_badge(self, job: Job) -> SafeString:
        return formats.badge(job)

    @admin.display(description="state")
    def status(self, row: Any) -> SafeString:
        """Render the state, and below it when the job settled or will be due, and its error."""
        return formats.status_of(row, formats.describe_timing(row, row.listed_at))

    @admin.display(description="available at")
    def due(self, job: Job) -> str:
        return formats.format_time(job.due_at)

    @admin.display(description="first claimed at")
    def claimed(self, job: Job) -> str:
        return formats.format_time(job.first_claimed_at)

    @admin.display(description="last run")
    def last_run(self, job: Job) -> str:
        return timeline.read_last_run(job.id) or formats.NOTHING

    @admin.display(description="reported progress")
    def reported(self, job: Job) -> str:
        return str(progress.find(settings().DATABASE, job.id) or formats.NOTHING)

    @admin.display(description="held by")
    def holder(self, job: Job) -> str:
        return formats.holder_of(job)

    @admin.display(description="created at")
    def created(self, job: Job) -> str:
        return formats.format_time(ids.time_of(job.id))

    @admin.display(description="why it waits")
    def why(self, job: Job) -> str:
        """Return why a queued job is not claimed yet, in the sentences of `pulljobs explain`."""
        text = " ".join(reason.text for reason in explain.reasons(job))
        position = explain.position(job)
        return text if position is None else f"{text} {position.text}"

    def get_actions(  # type: ignore[override]  # stubs want unbound functions
        self, request: HttpRequest, action_location: Enum | None = None
    ) -> dict[str, Action]:
        """Return the actions that the user may do to jobs of the state that the filter selects.

        Django 6.1 also asks for the actions of a job's page, which get none: it has buttons.
        """
        if action_location is not None and action_location.name == "CHANGE_FORM":
            return {}
        offered = [
            (event, operations.OPERATIONS[event])
            for event in operations.offered(request, request.GET.get("state"))
        ]
        return {
            operation.slug: (partial(_act, event), operation.slug, str(operation.label))
            for event, operation in offered
        }

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        own = [
            path("all/<str:slug>/", view(partial(manyjobs.page, self)), name="pulljobs_job_all"),
            path("payload/<int:id>/", view(self.payload), name="pulljobs_job_payload"),
        ]
        return [*own, *super().get_urls()]

    def payload(self, request: HttpRequest, id: int) -> HttpResponse:
        """Answer with the payload of the message `id`.

        Raise PermissionDenied if the user may not see payloads, and Http404 if it is gone.
        """
        if not payloads.may_read(request):
            raise PermissionDenied
        return payloads.answer_payload(request, id)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        context = {"for_all": manyjobs.links(request)}
        response: HttpResponse = super().changelist_view(request, context | (extra_context or {}))
        return response

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        if BUTTON in request.POST and (numbers := search.numbers([object_id])):
            return self._press(request, numbers[0])
        job = self.get_object(request, object_id)
        if job is None:
            return super().change_view(request, object_id, form_url, extra_context)
        context = self.about(request, job) | {
            "buttons": [
                operations.OPERATIONS[event] for event in operations.offered(request, job.state)
            ],
        }
        return super().change_view(request, object_id, form_url, (extra_context or {}) | context)

    def _press(self, request: HttpRequest, job_id: int) -> HttpResponse:
        """Do the action of a pressed button to a job, and redirect to its page or to the list.

        To reschedule it, redirect to the page that asks for the time. If the state of the job no
        longer allows the action, a message says so.
        """
        event = operations.BY_SLUG.get(request.POST[BUTTON])
        if event not in operations.offered(request, None) or event is None:
            raise PermissionDenied
        if not self.has_view_permission(request):
            raise PermissionDenied
        if event is Event.RESCHEDULE:
            return manyjobs.asking_when(request, [job_id])
        operations.perform(request, event, [job_id])
        if Job.objects.using(settings().DATABASE).filter(id=job_id).exists():
            return HttpResponseRedirect(request.get_full_path())
        return HttpResponseRedirect(
            formats.address(self.admin_site.name, "pulljobs_job_changelist")
        )


def may_see_archive(request: HttpRequest) -> bool:
    """Return True if the user may see archived jobs, which the list of jobs then includes."""
    return request.user.has_perm("pulljobs.view_archivedjob")


def _listed(request: HttpRequest) -> Selection:
    """Return the list's conditions for jobs, live ones only if the user may not see the archive."""
    meant = list_query.select_all_jobs(request.GET)
    if may_see_archive(request) or meant.among is not None:
        return meant
    live = tuple(state for state in meant.states if state in LIVE)
    return meant._replace(states=live) if live else list_query.NOTHING


def _act(
    event: Event, admin: JobAdmin, request: HttpRequest, queryset: QuerySet[Job]
) -> HttpResponse | None:
    """Do an action to the jobs with a ticked checkbox, even if the filter no longer shows them.

    To reschedule jobs, return a redirect to the page that asks for the time.
    """
    selected = request.POST.getlist(ACTION_CHECKBOX_NAME)
    jobs = search.numbers(selected)
    if event is Event.RESCHEDULE:
        return manyjobs.asking_when(request, jobs)
    operations.perform(request, event, jobs)
    return None
