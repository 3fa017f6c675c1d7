"""What is done to a channel, a producer or a consumer from a page of its own, and written down."""

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
from pulljobs.models.registry import Party
from pulljobs.storage import nodes

ENDLESS: Final = timedelta(days=36_500)
SPANS: Final = {
    "15min": (gettext_lazy("for 15 minutes"), timedelta(minutes=15)),
    "1h": (gettext_lazy("for an hour"), timedelta(hours=1)),
    "1d": (gettext_lazy("for a day"), timedelta(days=1)),
    "endless": (gettext_lazy("until it is resumed"), ENDLESS),
}
LONG: Final = timedelta(days=3_650)
"""A pause beyond it was meant to have no end."""


class PauseForm(forms.Form):
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

    def end(self) -> datetime:
        """By the database's clock, unless a time was given."""
        given: datetime | None = self.cleaned_data["until"]
        span = SPANS[self.cleaned_data["span"]][1]
        return given or nodes.clock(settings().DATABASE) + span


def name_of(party: Party) -> str:
    """In the trail."""
    channel = f"{party.channel.name}/" if isinstance(party, Consumer) else ""
    return f"{party._meta.verbose_name} {channel}{party.name}"


def may(request: HttpRequest, word: str, party: Party | type[Party]) -> bool:
    """By the permission for it, or by that to change all of it."""
    model = party._meta.model_name
    return any(request.user.has_perm(f"pulljobs.{verb}_{model}") for verb in (word, "change"))


def pause_until(party: Channel | Consumer) -> datetime | None:
    """None: it is not paused."""
    now = nodes.clock(settings().DATABASE)
    return party.paused_until if party.paused_until and party.paused_until > now else None


def shown_pause(until: datetime, now: datetime) -> str:
    return _("paused") if until - now > LONG else _("paused until %s") % looks.moment(until)


def pause(listed: Any, request: HttpRequest, id: int) -> HttpResponse:
    party = _party(listed, request, id, "pause")
    form = PauseForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        _set_pause(request, party, form.end())
        messages.success(request, _("%s is paused: what is in flight goes on.") % party)
        return _back(party)
    return _page(listed, request, party, "pause", form=form, title=_("Pause %s") % party)


def resume(listed: Any, request: HttpRequest, id: int) -> HttpResponse:
    party = _party(listed, request, id, "pause")
    if request.method != "POST":
        raise Http404
    _set_pause(request, party, None)
    messages.success(request, _("%s goes on.") % party)
    return _back(party)


def rotate(listed: Any, request: HttpRequest, id: int) -> HttpResponse:
    """The new token is in the answer to the form and nowhere else."""
    party = _party(listed, request, id, "rotate")
    token = ""
    if request.method == "POST":
        token = party.set_token()
        party.save(
            using=settings().DATABASE,
            update_fields=["token_digest", "token_sealed", "changed_at"],
        )
        _note(request, party, AuditEntry.Act.ROTATE)
    title = _("Token of %s") % party
    return _page(listed, request, party, "rotate", token=token, title=title)


def _set_pause(request: HttpRequest, party: Any, until: datetime | None) -> None:
    operating.pause(party, until)
    _note(request, party, AuditEntry.Act.PAUSE if until else AuditEntry.Act.RESUME, until)


def _note(
    request: HttpRequest, party: Party, act: AuditEntry.Act, at: datetime | None = None
) -> None:
    auditing.note(act, by=request.user.get_username(), upon=name_of(party), at=at)


def _party(listed: Any, request: HttpRequest, id: int, word: str) -> Any:
    if not may(request, word, listed.model):
        raise PermissionDenied
    party = listed.get_queryset(request).filter(pk=id).first()
    if party is None:
        raise Http404
    return party


def _back(party: Party) -> HttpResponseRedirect:
    name = f"admin:pulljobs_{party._meta.model_name}_change"
    return HttpResponseRedirect(reverse(name, args=[party.pk]))


def _page(
    listed: Any, request: HttpRequest, party: Party, word: str, **context: Any
) -> TemplateResponse:
    page = {**listed.admin_site.each_context(request), "opts": listed.model._meta, "party": party}
    return TemplateResponse(
        request,
        f"admin/pulljobs/{word}.html",
        page | {"media": listed.media, "back": _back(party).url} | context,
    )
