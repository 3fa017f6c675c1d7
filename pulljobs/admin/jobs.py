"""Live jobs: to find, to look at, to redrive, kill and delete."""

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from pulljobs import ids
from pulljobs.admin import looks, operations
from pulljobs.admin.columns import JobRowsAdmin
from pulljobs.admin.filters import ChannelFilter, ConsumerFilter, ReasonFilter, StateFilter
from pulljobs.conf import settings
from pulljobs.models import Job
from pulljobs.states import Event

Action = tuple[Callable[..., None], str, str]
BUTTON = "_event"
COUNTS = ("retry_count", "deliveries")


@admin.register(Job)
class JobAdmin(JobRowsAdmin):
    id_field = "id"
    list_display = (
        "xid",
        "stands",
        "subscription",
        "priority",
        "retries",
        "due",
    )
    list_filter = (StateFilter, ReasonFilter, ChannelFilter, ConsumerFilter)
    search_fields = ("id",)
    fieldsets = (
        (None, {"fields": ("xid", "id", "state", "reason", "last_error", "holder")}),
        ("Duty", {"fields": ("subscription_link", "key", "priority", "incremental_timeout")}),
        ("So far", {"fields": ("created", "due", "claimed", *COUNTS)}),
    )
    readonly_fields = (
        "xid",
        "last_error",
        "holder",
        "subscription_link",
        "created",
        "due",
        "claimed",
    )

    @admin.display(description="available at")
    def due(self, job: Job) -> str:
        return looks.moment(job.available_at)

    @admin.display(description="first claimed at")
    def claimed(self, job: Job) -> str:
        return looks.moment(job.first_claimed_at)

    @admin.display(description="held by")
    def holder(self, job: Job) -> str:
        return looks.holder_of(job)

    @admin.display(description="created at")
    def created(self, job: Job) -> str:
        return looks.moment(ids.time_of(job.id))

    def get_actions(  # type: ignore[override]  # stubs want unbound functions
        self, request: HttpRequest, action_location: Enum | None = None
    ) -> dict[str, Action]:
        """Where the list shows one state, only what that state allows.

        Django 6.1 asks for actions of the page of one job too: that has its buttons.
        """
        if action_location is not None and action_location.name == "CHANGE_FORM":
            return {}
        return {
            event.value: (
                partial(_act, event),
                event.value,
                str(operations.OPERATIONS[event].label),
            )
            for event in operations.offered(request, request.GET.get("state"))
        }

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        if BUTTON in request.POST and object_id.isdecimal():
            return self._press(request, int(object_id))
        job = self.get_object(request, object_id)
        if job is None:
            return super().change_view(request, object_id, form_url, extra_context)
        context = {
            "subtitle": self.xid(job),
            "message": looks.message_of(job),
            "history": looks.history_of(job.id),
            "buttons": [
                (event.value, operations.OPERATIONS[event].label)
                for event in operations.offered(request, job.state)
            ],
        }
        return super().change_view(request, object_id, form_url, (extra_context or {}) | context)

    def _press(self, request: HttpRequest, job_id: int) -> HttpResponse:
        """The state may have changed since the page was made: then that is told."""
        pressed = request.POST[BUTTON]
        if pressed not in operations.offered(request, None):
            raise PermissionDenied
        operations.perform(request, Event(pressed), [job_id])
        if Job.objects.using(settings().DATABASE).filter(id=job_id).exists():
            return HttpResponseRedirect(request.get_full_path())
        return HttpResponseRedirect(reverse("admin:pulljobs_job_changelist"))


def _act(event: Event, admin: JobAdmin, request: HttpRequest, queryset: QuerySet[Job]) -> None:
    """On the rows that were selected, also on those that have left the list's filter since."""
    selected = request.POST.getlist(ACTION_CHECKBOX_NAME)
    operations.perform(request, event, [int(id) for id in selected if id.isdecimal()])
