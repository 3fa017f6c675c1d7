"""Acting on all jobs that a filter shows: first how many they are; if it is confirmed, on all.

What takes long is left to whatever process gets to it; the audit trail tells how far it came.
"""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from pulljobs import auditing, operating
from pulljobs.admin import asking, operations
from pulljobs.admin.operations import OPERATIONS
from pulljobs.auditing import Preview
from pulljobs.conf import settings
from pulljobs.models import Job
from pulljobs.states import Event

if TYPE_CHECKING:
    from pulljobs.admin.jobs import JobAdmin

AT_ONCE_SECONDS: Final = 1.0
TOLD_LASTS: Final = timedelta(days=1)
NOT_TOLD: Final = _(
    "Nothing was done: this page was opened more than a day ago, by another user, or for other "
    "jobs. Look at it again, and confirm."
)
NOT_ASKED: Final = ("id__lt", "p", "e")
"""Parameters of a list that say nothing about which jobs are meant."""


class Link(NamedTuple):
    label: Any
    url: str


class WhenForm(forms.Form):
    at = forms.DateTimeField(
        required=False,
        label=_("Due at"),
        help_text=_("Empty: now."),
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}),
    )

    def clean_at(self) -> datetime | None:
        at: datetime | None = self.cleaned_data["at"]
        try:
            operating.check_due(at)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error
        return at


def links(request: HttpRequest) -> list[Link]:
    """To the pages of what this user may do to all that the list is of."""
    query = _asked(request.GET).urlencode()
    return [
        Link(OPERATIONS[event].label, f"{_url(event)}?{query}")
        for event in operations.offered(request, request.GET.get("state") or None)
    ]


def asking_when(jobs: list[int]) -> HttpResponse:
    """The page that asks for the time to reschedule them to."""
    query = urlencode({asking.CHOSEN: ",".join(map(str, jobs))})
    return HttpResponseRedirect(f"{_url(Event.RESCHEDULE)}?{query}")


def page(listed: "JobAdmin", request: HttpRequest, word: str) -> HttpResponse:
    event = operations.BY_WORD.get(word)
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
    meant = asking.jobs(request.GET)
    by = request.user.get_username()
    if asking.CHOSEN in request.GET:
        entry = auditing.act(event, meant.among or (), by=by, at=at)
        operations.tell(request, entry)
        return HttpResponseRedirect(reverse("admin:pulljobs_job_changelist"))
    told = _told(request, event)
    if told is None:
        messages.error(request, NOT_TOLD)
        return HttpResponseRedirect(request.get_full_path())
    subject = asking.words(_asked(request.GET))
    entry = auditing.begin(event, meant, by=by, subject=subject, at=at, expected=told)
    if auditing.proceed(AT_ONCE_SECONDS, entry.pk):
        messages.info(request, _("It goes on: by any worker, or `manage.py pulljobs operate`."))
    return HttpResponseRedirect(reverse("admin:pulljobs_auditentry_change", args=[entry.pk]))


def _telling(request: HttpRequest, event: Event, preview: Preview) -> str:
    """Signed, for the trail is to say what whoever confirmed it was told."""
    return signing.dumps([preview.jobs, preview.is_more], salt=_salt(request, event))


def _told(request: HttpRequest, event: Event) -> Preview | None:
    """What is confirmed; None: this user was told no such thing of these jobs and this act."""
    given, salt = request.POST.get("told", ""), _salt(request, event)
    try:
        jobs, is_more = signing.loads(given, salt=salt, max_age=TOLD_LASTS)
    except signing.BadSignature:
        return None
    return Preview(jobs, is_more, [])


def _salt(request: HttpRequest, event: Event) -> str:
    return f"pulljobs {request.user.pk} {event} {_asked(request.GET).urlencode()}"


def _shown(
    listed: "JobAdmin", request: HttpRequest, event: Event, when: WhenForm
) -> TemplateResponse:
    meant = asking.jobs(request.GET)
    preview = auditing.preview(event, meant)
    rows = Job.objects.using(settings().DATABASE).filter(pk__in=preview.first)
    operation = OPERATIONS[event]
    return TemplateResponse(
        request,
        "admin/pulljobs/job/all.html",
        {
            **listed.admin_site.each_context(request),
            "title": f"{operation.label}: {asking.words(_asked(request.GET))}",
            "opts": listed.model._meta,
            "media": listed.media,
            "operation": operation,
            "preview": preview,
            "told": _telling(request, event, preview),
            "is_chosen": asking.CHOSEN in request.GET,
            "first": rows.select_related("consumer__channel").order_by("pk"),
            "form": when if event is Event.RESCHEDULE else None,
            "back": f"{reverse('admin:pulljobs_job_changelist')}?{_asked(request.GET).urlencode()}",
        },
    )


def _asked(query: QueryDict) -> QueryDict:
    asked = query.copy()
    for name in NOT_ASKED:
        asked.pop(name, None)
    return asked


def _url(event: Event) -> str:
    return reverse("admin:pulljobs_job_all", args=[OPERATIONS[event].word])
