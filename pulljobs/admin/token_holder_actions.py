"""Actions on a channel, a producer or a consumer with pages of their own, and audit entries."""

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
from pulljobs.admin import looks
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
"""New secrets with their names."""
LONG: Final = timedelta(days=3_650)
"""Shortest pause that is shown as one without an end."""


class PauseForm(forms.Form):
    """Form for the length of a pause."""

    span = forms.ChoiceField(
        label=gettext_lazy("Pause it"),
        choices=[(value, title) for value, (title, _span) in SPANS.items()],
        widget=forms.RadioSelect,
        initial="1h",
    )
    until = forms.DateTimeField(
        required=False,
        label=gettext_lazy("Or until"),
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
        """Return the end of the pause. A length counts from the database's clock."""
        given: datetime | None = self.cleaned_data["until"]
        span = SPANS[self.cleaned_data["span"]][1]
        return given or nodes.clock(settings().DATABASE) + span


def may(request: HttpRequest, action: str, token_holder: TokenHolder | type[TokenHolder]) -> bool:
    """Return True if the user has the permission for the action, or to change the row."""
    model = token_holder._meta.model_name
    return any(request.user.has_perm(f"pulljobs.{verb}_{model}") for verb in (action, "change"))


def pause_until(token_holder: Channel | Consumer) -> datetime | None:
    """Return the end of its pause, or None if it is not paused."""
    until, now = token_holder.paused_until, nodes.clock(settings().DATABASE)
    return until if until and until > now else None


def describe_pause(until: datetime, now: datetime) -> str:
    return _("paused") if until - now > LONG else _("paused until %s") % looks.format_time(until)


def pause(listed: Any, request: HttpRequest, id: int) -> HttpResponse:
    token_holder = find_token_holder(listed, request, id, "pause")
    form = PauseForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        _set_pause(request, token_holder, form.end())
        text = _("%s is paused; jobs in flight go on.")
        if pause_until(token_holder) is None:
            text = _("%s is not paused: that time is in the past.")
        messages.success(request, text % token_holder)
        return back_to(token_holder)
    return render_page(
        listed, request, token_holder, "pause", form=form, title=_("Pause %s") % token_holder
    )


def resume(listed: Any, request: HttpRequest, id: int) -> HttpResponse:
    token_holder = find_token_holder(listed, request, id, "pause")
    if request.method != "POST":
        raise Http404
    _set_pause(request, token_holder, None)
    messages.success(request, _("%s is resumed.") % token_holder)
    return back_to(token_holder)


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
    return show_secrets(listed, request, token_holder, secrets, back_to(token_holder).url)


def show_secrets(
    listed: Any, request: HttpRequest, token_holder: TokenHolder, secrets: Secrets, then: str
) -> TemplateResponse:
    """Show secrets in the answer to a form only, because Django stores messages for a while."""
    title = _("Secrets of %s") % token_holder
    return render_page(
        listed, request, token_holder, "secrets", secrets=secrets, then=then, title=title
    )


def note_secrets(request: HttpRequest, token_holder: TokenHolder, secrets: Secrets) -> None:
    by, name = request.user.get_username(), auditing.name_of(token_holder)
    for what, _secret in secrets:
        subject = name if what is TOKEN else f"{name}: its signing secret"
        auditing.note(AuditEntry.Act.ROTATE, by=by, subject=subject)


def _set_pause(request: HttpRequest, token_holder: Any, until: datetime | None) -> None:
    operating.pause(token_holder, until)
    auditing.note_pause(token_holder, until, by=request.user.get_username())


def find_token_holder(listed: Any, request: HttpRequest, id: int, action: str) -> Any:
    """Return the row, or raise PermissionDenied or Http404."""
    if not may(request, action, listed.model):
        raise PermissionDenied
    token_holder = listed.get_queryset(request).filter(pk=id).first()
    if token_holder is None:
        raise Http404
    return token_holder


def back_to(token_holder: TokenHolder) -> HttpResponseRedirect:
    """Redirect to the page of the row."""
    name = f"admin:pulljobs_{token_holder._meta.model_name}_change"
    return HttpResponseRedirect(reverse(name, args=[token_holder.pk]))


def render_page(
    listed: Any, request: HttpRequest, token_holder: TokenHolder, action: str, **context: Any
) -> TemplateResponse:
    """Render the page of an action."""
    page = {
        **listed.admin_site.each_context(request),
        "opts": listed.model._meta,
        "token_holder": token_holder,
    }
    return TemplateResponse(
        request,
        f"admin/pulljobs/{action}.html",
        page | {"media": listed.media, "back": back_to(token_holder).url} | context,
    )
