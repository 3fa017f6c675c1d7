"""Actions on all jobs of a filtered list: a page with a preview, and the action when confirmed.

The request begins the action, and workers continue it if it takes longer than a second. The audit
trail shows its progress.
"""

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy as _

from pulljobs import auditing, operating
from pulljobs.admin import formats, list_query, operations, search
from pulljobs.admin.action_pages import read_preview, sign_preview
from pulljobs.admin.links import Links
from pulljobs.admin.operations import OPERATIONS
from pulljobs.auditing import Preview
from pulljobs.conf import settings
from pulljobs.models import AuditEntry, Job
from pulljobs.states import Event

if TYPE_CHECKING:
    from pulljobs.admin.jobs import JobAdmin

AT_ONCE_SECONDS: Final = 1.0
"""Time for which the request of the confirmation works on the jobs."""
NOT_CONFIRMED: Final = _(
    "Nothing was changed: this page was opened more than a day ago, by another user, or for "
    "other jobs. Check it again and confirm."
)
NOT_ASKED: Final = ("id__lt", "p", "e")
"""Query parameters of a list that select no jobs, such as that of its page."""


class ActionLink(NamedTuple):
    """Link from the list of jobs to the preview of an action."""

    label: Any
    url: str


class WhenForm(forms.Form):
    at = forms.DateTimeField(
        required=False,
        label=_("Due at"),
        help_text=_("Empty: now. In the time zone of this site."),
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}),
    )

    def clean_at(self) -> datetime | None:
        at: datetime | None = self.cleaned_data["at"]
        try:
            operating.check_due(at)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error
        return at


def links(request: HttpRequest) -> list[ActionLink]:
    """Return links to the actions that the user may do to all jobs of the list.

    There are none while the list is searched for a text, because a page compares only some jobs.
    """
    if request.GET.get("q") and (
        search.is_for_text(request.GET) or not list_query.select_jobs(request.GET).among
    ):
        return []
    query = _asked(request.GET).urlencode()
    return [
        ActionLink(OPERATIONS[event].label, f"{_url(request, event)}?{query}")
        for event in operations.offered(request, request.GET.get("state") or None)
    ]


def asking_when(request: HttpRequest, jobs: list[int]) -> HttpResponse:
    """Redirect to the page on which the operator enters the time when these jobs are to be due."""
    # Servers and Django limit the length of URLs: the commas of a hundred jobs stay one character.
    query = urlencode({list_query.CHOSEN: ",".join(map(str, jobs))}, safe=",")
    return HttpResponseRedirect(f"{_url(request, Event.RESCHEDULE)}?{query}")


def page(listed: "JobAdmin", request: HttpRequest, slug: str) -> HttpResponse:
    event = operations.BY_SLUG.get(slug)
    if event is None:
        raise Http404
    may_act = request.user.has_perm(OPERATIONS[event].permission)
    if not (may_act and listed.has_view_permission(request)):
        raise PermissionDenied
    when = WhenForm(request.POST or None)
    if request.method == "POST" and (event is not Event.RESCHEDULE or when.is_valid()):
        return _do(request, event, when)
    return _shown(listed, request, event, when)


def _do(request: HttpRequest, event: Event, when: WhenForm) -> HttpResponse:
    at = when.cleaned_data["at"] if event is Event.RESCHEDULE else None
    meant = list_query.select_jobs(request.GET)
    by = request.user.get_username()
    if list_query.CHOSEN in request.GET:
        entry = auditing.act(event, meant.among or (), by=by, at=at)
        operations.report(request, entry)
        return HttpResponseRedirect(_address(request, "pulljobs_job_changelist"))
    confirmed = _confirmed(request, event)
    if confirmed is None:
        messages.error(request, NOT_CONFIRMED)
        return HttpResponseRedirect(request.get_full_path())
    subject = list_query.describe(_asked(request.GET))
    entry = auditing.begin(event, meant, by=by, subject=subject, at=at, expected=confirmed)
    if auditing.proceed(AT_ONCE_SECONDS, entry.pk):
        messages.info(request, _("Workers continue it, and so does `manage.py pulljobs operate`."))
    return _show_progress(request, entry)


def _show_progress(request: HttpRequest, entry: AuditEntry) -> HttpResponseRedirect:
    """Redirect to the page of the action in the audit trail.

    If the user may not see that page, redirect to the list of jobs, with a message of the progress.
    """
    if page := Links(request).row(entry):
        return HttpResponseRedirect(page)
    entry.refresh_from_db(using=settings().DATABASE)
    counts = {"done": f"{entry.done:,}", "refused": f"{entry.refused:,}"}
    messages.success(request, _("Changed: %(done)s. Not changed: %(refused)s.") % counts)
    return HttpResponseRedirect(_address(request, "pulljobs_job_changelist"))


def _confirmed(request: HttpRequest, event: Event) -> Preview | None:
    """Return the confirmed preview, None if it is a day old or of another user, action or list."""
    if (shown := read_preview(request, _salt(request, event))) is None:
        return None
    jobs, is_more = shown
    return Preview(jobs, is_more, [])


def _salt(request: HttpRequest, event: Event) -> str:
    return f"{request.user.pk} {event} {_asked(request.GET).urlencode()}"


def _shown(
    listed: "JobAdmin", request: HttpRequest, event: Event, when: WhenForm
) -> TemplateResponse:
    meant = list_query.select_jobs(request.GET)
    preview = auditing.preview(event, meant)
    rows = Job.objects.using(settings().DATABASE).filter(pk__in=preview.first)
    operation = OPERATIONS[event]
    return TemplateResponse(
        request,
        "admin/pulljobs/job/all.html",
        {
            **listed.admin_site.each_context(request),
            "title": f"{operation.label}: {list_query.describe(_asked(request.GET))}",
            "opts": listed.model._meta,
            "media": listed.media,
            "operation": operation,
            "preview": preview,
            "preview_token": sign_preview([preview.jobs, preview.is_more], _salt(request, event)),
            "is_chosen": list_query.CHOSEN in request.GET,
            "first": rows.select_related("consumer__channel").order_by("pk"),
            "form": when if event is Event.RESCHEDULE else None,
            "back": _list_url(request),
        },
    )


def _list_url(request: HttpRequest) -> str:
    """Return the URL of the list with the filters of this page, for the way back to it."""
    asked = _asked(request.GET)
    asked.pop(list_query.CHOSEN, None)
    return f"{_address(request, 'pulljobs_job_changelist')}?{asked.urlencode()}"


def _asked(query: QueryDict) -> QueryDict:
    asked = query.copy()
    for name in NOT_ASKED:
        asked.pop(name, None)
    return asked


def _url(request: HttpRequest, event: Event) -> str:
    return _address(request, "pulljobs_job_all", OPERATIONS[event].slug)


def _address(request: HttpRequest, page: str, *ids: Any) -> str:
    return formats.address(formats.site_of(request), page, *ids)
