"""Views of the actions on one schedule: fire now, pause, resume."""

from datetime import datetime
from typing import Any

from django.contrib import messages
from django.contrib.admin.helpers import ActionForm
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from pulljobs.admin.action_pages import (
    OpenedField,
    opened_at,
    read_clock,
    reporting_errors,
)
from pulljobs.admin.formats import address, site_of
from pulljobs.admin.token_holder_actions import ENDLESS, SPANS, PauseForm
from pulljobs.schedules import acting
from pulljobs.schedules.models import Schedule


class ScheduleActionForm(ActionForm):
    """Form of the list's actions, with the time when the page was opened."""

    opened = OpenedField()


def may(request: HttpRequest, action: str) -> bool:
    """Return True if the user has the permission for the action, or that to change schedules.

    `action` is "pause" or "fire".
    """
    return any(
        request.user.has_perm(f"pulljobs_schedules.{verb}_schedule") for verb in (action, "change")
    )


def fire(listed: Any, request: HttpRequest, id: int) -> HttpResponse:
    row = find_schedule(listed, request, id, "fire")
    if request.method != "POST":
        title = _("Fire %s now") % row
        return render_page(listed, request, row, "fire", title=title, opened=read_clock())
    with reporting_errors(request):
        acting.fire_now(row.name, by=request.user.get_username(), opened_at=opened_at(request))
        messages.success(request, _("Schedule %s was fired.") % row)
    return back_to(request, row)


def pause(listed: Any, request: HttpRequest, id: int) -> HttpResponse:
    row = find_schedule(listed, request, id, "pause")
    form = PauseForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        with reporting_errors(request):
            acting.pause(row.name, _end_of(form), by=request.user.get_username())
            messages.success(request, _("Schedule %s is paused.") % row)
        return back_to(request, row)
    return render_page(listed, request, row, "pause", form=form, title=_("Pause %s") % row)


def resume(listed: Any, request: HttpRequest, id: int) -> HttpResponse:
    row = find_schedule(listed, request, id, "pause")
    if request.method != "POST":
        raise Http404
    with reporting_errors(request):
        acting.resume(row.name, by=request.user.get_username())
        messages.success(request, _("Schedule %s is resumed.") % row)
    return back_to(request, row)


def _end_of(form: PauseForm) -> datetime | None:
    """Return the end of the pause in the form, or None for a pause until a user resumes."""
    is_endless = SPANS[form.cleaned_data["span"]][1] == ENDLESS
    return None if is_endless and not form.cleaned_data["until"] else form.end()


def find_schedule(listed: Any, request: HttpRequest, id: int, action: str) -> Schedule:
    """Return the schedule if the user may do the action. Raise PermissionDenied or Http404."""
    if not (listed.has_view_permission(request) and may(request, action)):
        raise PermissionDenied
    row: Schedule | None = listed.get_queryset(request).filter(pk=id).first()
    if row is None:
        raise Http404
    return row


def back_to(request: HttpRequest, row: Schedule) -> HttpResponseRedirect:
    """Return a redirect to the page of a schedule."""
    page = "pulljobs_schedules_schedule_change"
    return HttpResponseRedirect(address(site_of(request), page, row.pk))


def render_page(
    listed: Any, request: HttpRequest, row: Schedule, action: str, **context: Any
) -> TemplateResponse:
    """Render the template of an action on a schedule, with `context` added to that of the page."""
    page = {
        **listed.admin_site.each_context(request),
        "opts": listed.model._meta,
        "schedule": row,
        "rule": row.rule.describe(),
        "media": listed.media,
        "back": back_to(request, row).url,
    }
    return TemplateResponse(request, f"admin/pulljobs_schedules/{action}.html", page | context)
