"""Views that pause a channel or consumer, or give a channel, producer or consumer a new token.

They are token holders: each has a token for the HTTP API. The audit trail records every action.
"""

from datetime import datetime, timedelta
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pulljobs import auditing, operating
from pulljobs.admin import formats
from pulljobs.conf import settings
from pulljobs.models import AuditEntry, Channel, Consumer
from pulljobs.models.token_holders import TokenHolder
from pulljobs.storage import nodes

ENDLESS: Final = timedelta(days=36_500)
SPANS: Final = {
    "15min": (gettext_lazy("for 15 minutes"), timedelta(minutes=15)),
    "1h": (gettext_lazy("for an hour"), timedelta(hours=1)),
    "1d": (gettext_lazy("for a day"), timedelta(days=1)),
    "endless": (gettext_lazy("until it is resumed"), ENDLESS),
}
TOKEN: Final = gettext_lazy("Token")
SIGNING_SECRET: Final = gettext_lazy("Signing secret")
Secrets = list[tuple[Any, str]]
"""New secrets: for each its name, TOKEN or SIGNING_SECRET, and its value."""
LONG: Final = timedelta(days=3_650)
"""Shortest pause that pages show as a pause without an end."""


class PauseForm(forms.Form):
    """Form that asks for the length or the end of a pause."""

    span = forms.ChoiceField(
        label=gettext_lazy("Pause it"),
        choices=[(value, title) for value, (title, _span) in SPANS.items()],
        widget=forms.RadioSelect,
        initial="1h",
    )
    until = forms.DateTimeField(
        required=False,
        label=gettext_lazy("Or until"),
        help_text=gettext_lazy("In the time zone of this site."),
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}),
    )

    def clean_until(self) -> datetime | None:
        until: datetime | None = self.cleaned_data["until"]
        try:
            operating.check_pause(until)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error
        return until

    def end(self) -> datetime:
        """Return the entered end of the pause, or the database's time plus the chosen length."""
        given: datetime | None = self.cleaned_data["until"]
        span = SPANS[self.cleaned_data["span"]][1]
        return given or nodes.clock(settings().DATABASE) + span


def may(request: HttpRequest, action: str, token_holder: TokenHolder | type[TokenHolder]) -> bool:
    """Return True if the user may do this action ("pause", "rotate", "view") to the row or model.

    The permission of the action, or that to change the model, is enough.
    """
    model = token_holder._meta.model_name
    return any(request.user.has_perm(f"pulljobs.{verb}_{model}") for verb in (action, "change"))


def pause_until(token_holder: Channel | Consumer) -> datetime | None:
    """Return the end of the pause of this row, or None if it is not paused.

    A pause of the consumer's channel does not count here.
    """
    until, now = token_holder.paused_until, nodes.clock(settings().DATABASE)
    return until if until and until > now else None


def describe_pause(until: datetime, now: datetime) -> str:
    return _("paused") if until - now > LONG else _("paused until %s") % formats.format_time(until)


def pause(listed: Any, request: HttpRequest, id: int) -> HttpResponse:
    token_holder = find_token_holder(listed, request, id, "pause")
    form = PauseForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        _set_pause(request, token_holder, form.end())
        text = _("Claims of %s are paused; jobs in flight go on.")
        if pause_until(token_holder) is None:
            text = _("Claims of %s are not paused: that time is in the past.")
        messages.success(request, text % token_holder)
        return back_to(listed, token_holder, request)
    return render_page(
        listed, request, token_holder, "pause", form=form, title=_("Pause %s") % token_holder
    )


def resume(listed: Any, request: HttpRequest, id: int) -> HttpResponse:
    token_holder = find_token_holder(listed, request, id, "pause")
    if request.method != "POST":
        raise Http404
    _set_pause(request, token_holder, None)
    messages.success(request, _("Claims of %s are resumed.") % token_holder)
    return back_to(listed, token_holder, request)


def rotate(listed: Any, request: HttpRequest, id: int) -> HttpResponse:
    token_holder = find_token_holder(listed, request, id, "rotate")
    if request.method != "POST":
        return render_page(
            listed, request, token_holder, "rotate", title=_("Token of %s") % token_holder
        )
    secrets = [(TOKEN, token_holder.set_token())]
    token_holder.save(
        using=settings().DATABASE,
        update_fields=["token_digest", "token_sealed", "changed_at"],
    )
    note_secrets(request, token_holder, secrets)
    back = back_to(listed, token_holder, request)
    return show_secrets(listed, request, token_holder, secrets, back.url)


def show_secrets(
    listed: Any, request: HttpRequest, token_holder: TokenHolder, secrets: Secrets, then: str
) -> TemplateResponse:
    """Render the page that shows new secrets once, with a link to the URL `then`.

    Django's messages could not show them, because Django stores messages for a while.
    """
    title = _("Secrets of %s") % token_holder
    return render_page(
        listed, request, token_holder, "secrets", secrets=secrets, then=then, title=title
    )


def note_secrets(request: HttpRequest, token_holder: TokenHolder, secrets: Secrets) -> None:
    by, name = request.user.get_username(), token_holder.describe()
    for what, _secret in secrets:
        subject = name if what is TOKEN else f"{name}: its signing secret"
        auditing.note(AuditEntry.Act.ROTATE, by=by, subject=subject)


def _set_pause(request: HttpRequest, token_holder: Any, until: datetime | None) -> None:
    operating.pause(token_holder, until)
    auditing.note_pause(token_holder, until, by=request.user.get_username())


def find_token_holder(listed: Any, request: HttpRequest, id: int, action: str) -> Any:
    """Return the row with this primary key on which the user wants to do an action.

    Raise PermissionDenied if the user may not, and Http404 if there is no such row.
    """
    if not may(request, action, listed.model):
        raise PermissionDenied
    token_holder = listed.get_queryset(request).filter(pk=id).first()
    if token_holder is None:
        raise Http404
    return token_holder


def back_to(listed: Any, token_holder: TokenHolder, request: HttpRequest) -> HttpResponseRedirect:
    """Return a redirect to the page of a row, or to the index if the user may not see that page."""
    if not listed.has_view_permission(request):
        return HttpResponseRedirect(reverse(f"{listed.admin_site.name}:index"))
    page = f"pulljobs_{token_holder._meta.model_name}_change"
    return HttpResponseRedirect(formats.address(listed.admin_site.name, page, token_holder.pk))


def render_page(
    listed: Any, request: HttpRequest, token_holder: TokenHolder, action: str, **context: Any
) -> TemplateResponse:
    """Render the template `admin/pulljobs/<action>.html` with the context of the admin's pages."""
    page = {
        **listed.admin_site.each_context(request),
        "opts": listed.model._meta,
        "token_holder": token_holder,
        "media": listed.media,
        "back": back_to(listed, token_holder, request).url,
        "may_view": listed.has_view_permission(request),
    }
    return TemplateResponse(request, f"admin/pulljobs/{action}.html", page | context)
