"""Actions on a run in the admin, each with a page: send a signal, redrive from a step."""

import json
from collections.abc import Callable
from typing import Any, Final
from uuid import uuid4

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pulljobs import ids
from pulljobs.admin import formats
from pulljobs.admin.action_pages import OpenedField, opened_at, reporting_errors
from pulljobs.errors import UnknownJob, UnknownRun
from pulljobs.workflows import acting, reading
from pulljobs.workflows.reading import RunView
from pulljobs.workflows.replay import LONGEST_NAME


class SignalForm(forms.Form):
    """Form for the name and the payload of a signal to a run."""

    name = forms.CharField(max_length=LONGEST_NAME, label=gettext_lazy("Name"))
    payload = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 4}),
        label=gettext_lazy("Payload"),
        help_text=gettext_lazy("JSON. Empty is null."),
    )

    dedupe_id = forms.CharField(
        required=False, max_length=LONGEST_NAME, widget=forms.HiddenInput, initial=uuid4
    )
    """New for each page, so that a page that is sent twice sends one signal."""

    def clean_payload(self) -> Any:
        """Return the payload parsed as JSON, or None for an empty field."""
        text = self.cleaned_data["payload"].strip()
        try:
            return json.loads(text) if text else None
        except (ValueError, RecursionError) as error:
            raise ValidationError(_("This is not JSON: %s.") % error) from error


class RedriveForm(forms.Form):
    """Form for the step from which a run is redriven. Without one, it goes on where it stopped."""

    step = forms.ChoiceField(
        required=False,
        label=gettext_lazy("From step"),
        help_text=gettext_lazy("That step and those after it are forgotten and run again."),
    )
    discard_signals = forms.BooleanField(
        required=False,
        label=gettext_lazy("Discard signals"),
        help_text=gettext_lazy("Waits among these steps wait for new signals."),
    )
    opened = OpenedField()

    def __init__(self, run: RunView, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        field: Any = self.fields["step"]
        steps = [(str(step.row.position), step.label) for step in run.steps]
        field.choices = [("", _("none: go on where it stopped")), *steps]


def send_signal(model_admin: Any, request: HttpRequest, id: int) -> HttpResponse:
    """Show the form for a signal to a run, or send the signal of a valid form."""
    run = _find_run(request, id, "signal")
    form = SignalForm(request.POST or None, initial={"name": run.row.waiting_for or ""})
    if request.method == "POST" and form.is_valid():
        with reporting_errors(request, ValueError, TypeError):
            is_sent = acting.signal(
                run.row.pk,
                form.cleaned_data["name"],
                form.cleaned_data["payload"],
                dedupe_id=form.cleaned_data["dedupe_id"] or None,
                by=request.user.get_username(),
            )
            sent, sent_before = (
                _("The signal was sent."),
                _("This page had sent its signal before."),
            )
            messages.success(request, sent if is_sent else sent_before)
        return _back(request, run)
    return _page(model_admin, request, run, form, _("Send a signal to run %s") % run.id)


def redrive(model_admin: Any, request: HttpRequest, id: int) -> HttpResponse:
    """Show the form for a redrive of a run, or redrive it as a valid form says."""
    run = _find_run(request, id, "redrive")
    form = RedriveForm(run, request.POST or None, initial={"step": request.GET.get("step", "")})
    if request.method == "POST" and form.is_valid():
        chosen = form.cleaned_data["step"]
        step = next((each.row for each in run.steps if str(each.row.position) == chosen), None)
        start = None if step is None else (step.name, step.number)
        with reporting_errors(request, ValueError, TypeError):
            acting.redrive(
                run.row.pk,
                from_step=start,
                discard_signals=form.cleaned_data["discard_signals"],
                opened_at=opened_at(request),
                by=request.user.get_username(),
            )
            messages.success(request, _("The run goes on."))
        return _back(request, run)
    return _page(model_admin, request, run, form, _("Redrive run %s") % run.id)


PAGES: Final[dict[str, Callable[..., HttpResponse]]] = {"signal": send_signal, "redrive": redrive}


def may(request: HttpRequest, verb: str) -> bool:
    """Return True if the user has the permission for an action on runs, such as `signal`."""
    return request.user.has_perm(f"pulljobs_workflows.{verb}_workflowrun")


def _find_run(request: HttpRequest, id: int, verb: str) -> RunView:
    if not may(request, verb) or not may(request, "view"):
        raise PermissionDenied
    try:
        return reading.get(id)
    except (UnknownRun, UnknownJob) as error:
        raise Http404(str(error)) from error


def _back(request: HttpRequest, run: RunView) -> HttpResponseRedirect:
    page = "pulljobs_workflows_workflowrun_change"
    return HttpResponseRedirect(formats.address(formats.site_of(request), page, run.row.pk))


def _page(
    model_admin: Any, request: HttpRequest, run: RunView, form: forms.Form, title: str
) -> HttpResponse:
    context = {
        **model_admin.admin_site.each_context(request),
        "opts": model_admin.opts,
        "media": model_admin.media,
        "form": form,
        "run": run,
        "xid": ids.encode(run.row.pk),
        "title": title,
        "back": _back(request, run).url,
    }
    return TemplateResponse(request, "admin/pulljobs_workflows/act.html", context)
