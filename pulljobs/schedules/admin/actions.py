"""Views of the actions on one schedule: fire now, pause, resume, backfill."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pulljobs.admin.manyjobs import PREVIEW_LASTS
from pulljobs.admin.token_holder_actions import ENDLESS, SPANS, PauseForm
from pulljobs.conf import settings
from pulljobs.errors import InvalidSchedule, PulljobsError
from pulljobs.schedules import acting, backfilling
from pulljobs.schedules.admin import formats
from pulljobs.schedules.admin.fields import SiteTimeField
from pulljobs.schedules.backfilling import BackfillPlan
from pulljobs.schedules.models import Schedule
from pulljobs.schedules.reading import UpcomingSlot, format_slots
from pulljobs.schedules.rules import format_slot
from pulljobs.storage import nodes

HOUR: Final = timedelta(hours=1)
SHOWN: Final = 20
NOT_CONFIRMED: Final = gettext_lazy(
    "Nothing was fired: this page was opened more than a day ago, by another user, or the slots or "
    "the schedule have changed. Check it again and confirm."
)


class BackfillForm(forms.Form):
    """Form for the window of a backfill. Once the form is valid, `plan` has the window's slots."""

    start = SiteTimeField(label=gettext_lazy("From"))
    end = SiteTimeField(label=gettext_lazy("To, exclusive"))
    plan = BackfillPlan([], 0)

    def __init__(self, row: Schedule, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._row = row

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if "start" not in cleaned or "end" not in cleaned:
            return cleaned
        try:
            self.plan = backfilling.plan_backfill(self._row, cleaned["start"], cleaned["end"])
        except InvalidSchedule as error:
            self.add_error(error.field if error.field in self.fields else None, str(error))
        return cleaned

    def slots(self) -> list[UpcomingSlot]:
        """Return the first slots that the backfill would fire, at most 20."""
        rule = self._row.rule
        return list(format_slots(rule, self.cleaned_data["start"], self.plan.left[:SHOWN]))


def may(request: HttpRequest, action: str) -> bool:
    """Return True if the user has the permission for the action, or that to change schedules.

    `action` is "pause" or "fire".
    """
    return any(
        request.user.has_perm(f"pulljobs_schedules.{verb}_schedule") for verb in (action, "change")
    )


def fire(listed: Any, request: HttpRequest, id: int) -> HttpResponse:
    row = _find_schedule(listed, request, id, "fire")
    if request.method != "POST":
        return _page(listed, request, row, "fire", title=_("Fire %s now") % row)
    with _reported(request):
        acting.fire_now(row.name, by=request.user.get_username())
        messages.success(request, _("Schedule %s was fired.") % row)
    return _back(row)


def pause(listed: Any, request: HttpRequest, id: int) -> HttpResponse:
    row = _find_schedule(listed, request, id, "pause")
    form = PauseForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        with _reported(request):
            acting.pause(row.name, _end_of(form), by=request.user.get_username())
            messages.success(request, _("Schedule %s is paused.") % row)
        return _back(row)
    return _page(listed, request, row, "pause", form=form, title=_("Pause %s") % row)


def resume(listed: Any, request: HttpRequest, id: int) -> HttpResponse:
    row = _find_schedule(listed, request, id, "pause")
    if request.method != "POST":
        raise Http404
    with _reported(request):
        acting.resume(row.name, by=request.user.get_username())
        messages.success(request, _("Schedule %s is resumed.") % row)
    return _back(row)


def backfill(listed: Any, request: HttpRequest, id: int) -> HttpResponse:
    """Show the past slots of the window in the query string, and fire them on a confirming POST."""
    row = _find_schedule(listed, request, id, "fire")
    now = nodes.clock(settings().DATABASE).replace(second=0, microsecond=0)
    form = BackfillForm(row, request.GET or None, initial={"start": now - HOUR, "end": now})
    context: dict[str, Any] = {"form": form, "title": _("Backfill %s") % row}
    if form.is_valid():
        if request.method == "POST":
            return _backfill(request, row, form)
        context |= _describe_plan(request, row, form)
    return _page(listed, request, row, "backfill", **context)


def _describe_plan(request: HttpRequest, row: Schedule, form: BackfillForm) -> dict[str, Any]:
    count = len(form.plan.left)
    return {
        "plan": form.plan,
        "slots": form.slots(),
        "more": max(0, count - SHOWN),
        "preview_token": signing.dumps(count, salt=_salt(request, row)),
    }


def _backfill(request: HttpRequest, row: Schedule, form: BackfillForm) -> HttpResponse:
    if not _is_confirmed(request, row, len(form.plan.left)):
        messages.error(request, NOT_CONFIRMED)
        return HttpResponseRedirect(request.get_full_path())
    window = form.cleaned_data["start"], form.cleaned_data["end"]
    with _reported(request):
        slots = acting.backfill(row.name, *window, by=request.user.get_username())
        messages.success(request, _("Slots that were fired: %s.") % len(slots))
    return _back(row)


def _is_confirmed(request: HttpRequest, row: Schedule, slots: int) -> bool:
    """Return True if the preview that the user confirms showed `slots` slots.

    The preview's signed token is valid for a day, and only for the same user, window and version
    of the row.
    """
    given = request.POST.get("preview_token", "")
    with suppress(signing.BadSignature):
        seen: int = signing.loads(given, salt=_salt(request, row), max_age=PREVIEW_LASTS)
        return seen == slots
    return False


def _salt(request: HttpRequest, row: Schedule) -> str:
    since = format_slot(row.changed_at)
    return f"pulljobs backfill {request.user.pk} {row.pk} {since} {request.GET.urlencode()}"


@contextmanager
def _reported(request: HttpRequest) -> Iterator[None]:
    """Show an error of the block, for example after a change by another user, on the next page."""
    try:
        yield
    except PulljobsError as error:
        messages.error(request, str(error))


def _end_of(form: PauseForm) -> datetime | None:
    """Return the end of the pause in the form, or None for a pause until a user resumes."""
    is_endless = SPANS[form.cleaned_data["span"]][1] == ENDLESS
    return None if is_endless and not form.cleaned_data["until"] else form.end()


def _find_schedule(listed: Any, request: HttpRequest, id: int, action: str) -> Schedule:
    if not (listed.has_view_permission(request) and may(request, action)):
        raise PermissionDenied
    row: Schedule | None = listed.get_queryset(request).filter(pk=id).first()
    if row is None:
        raise Http404
    return row


def _back(row: Schedule) -> HttpResponseRedirect:
    return HttpResponseRedirect(formats.page_of(row))


def _page(
    listed: Any, request: HttpRequest, row: Schedule, action: str, **context: Any
) -> TemplateResponse:
    page = {
        **listed.admin_site.each_context(request),
        "opts": listed.model._meta,
        "schedule": row,
        "rule": row.rule.describe(),
        "media": listed.media,
        "back": formats.page_of(row),
    }
    return TemplateResponse(request, f"admin/pulljobs_schedules/{action}.html", page | context)


PAGES: Final[dict[str, Callable[..., HttpResponse]]] = {
    "fire": fire,
    "pause": pause,
    "resume": resume,
    "backfill": backfill,
}
"""Views of the actions, by the last part of their URL paths."""
