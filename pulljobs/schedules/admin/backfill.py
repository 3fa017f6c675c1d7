"""View of a backfill: the past slots that it would fire, and then the backfill itself."""

from datetime import timedelta
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pulljobs.admin.action_pages import read_preview, reporting_errors, sign_preview
from pulljobs.conf import settings
from pulljobs.errors import InvalidSchedule
from pulljobs.schedules import acting, backfilling
from pulljobs.schedules.admin import actions
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


def backfill(listed: Any, request: HttpRequest, id: int) -> HttpResponse:
    """Show the past slots of the window in the query string, and fire them on a confirming POST."""
    row = actions.find_schedule(listed, request, id, "fire")
    now = nodes.clock(settings().DATABASE).replace(second=0, microsecond=0)
    form = BackfillForm(row, request.GET or None, initial={"start": now - HOUR, "end": now})
    context: dict[str, Any] = {"form": form, "title": _("Backfill %s") % row}
    if form.is_valid():
        if request.method == "POST":
            return _backfill(request, row, form)
        context |= _describe_plan(request, row, form)
    return actions.render_page(listed, request, row, "backfill", **context)


def _describe_plan(request: HttpRequest, row: Schedule, form: BackfillForm) -> dict[str, Any]:
    count = len(form.plan.left)
    return {
        "plan": form.plan,
        "slots": form.slots(),
        "more": max(0, count - SHOWN),
        "preview_token": sign_preview(count, _salt(request, row)),
    }


def _backfill(request: HttpRequest, row: Schedule, form: BackfillForm) -> HttpResponse:
    if read_preview(request, _salt(request, row)) != len(form.plan.left):
        messages.error(request, NOT_CONFIRMED)
        return HttpResponseRedirect(request.get_full_path())
    window = form.cleaned_data["start"], form.cleaned_data["end"]
    with reporting_errors(request):
        slots = acting.backfill(row.name, *window, by=request.user.get_username())
        messages.success(request, _("Slots that were fired: %s.") % len(slots))
    return actions.back_to(request, row)


def _salt(request: HttpRequest, row: Schedule) -> str:
    since = format_slot(row.changed_at)
    return f"backfill {request.user.pk} {row.pk} {since} {request.GET.urlencode()}"
