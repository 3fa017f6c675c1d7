"""Base classes of the pages of channels, producers and consumers, which all hold a token.

A token is shown once, when it is set.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.validators import RegexValidator
from django.db.models.constants import LOOKUP_SEP
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from pulljobs import operating
from pulljobs.admin import formats, token_holder_actions, token_holder_counts
from pulljobs.admin.base import BaseAdmin
from pulljobs.admin.guarded_forms import GuardedForm
from pulljobs.admin.links import Links
from pulljobs.conf import settings
from pulljobs.models import Channel, Consumer
from pulljobs.states import LIVE
from pulljobs.storage import nodes

TOKEN = RegexValidator(r"\A[\x21-\x7e]+\Z", _("Use ASCII letters, digits and signs, no spaces."))
Names = tuple[str, ...]
Titled = tuple[tuple[Any, Names], ...]


class TokenHolderForm(GuardedForm):
    token = forms.CharField(
        required=False,
        max_length=255,
        validators=[TOKEN],
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=_("Leave empty unless you want to choose the token yourself."),
    )


class TokenHolderAdmin(BaseAdmin):
    form = TokenHolderForm
    search_fields = ("name", "title")
    ordering: ClassVar[Names] = ("name",)
    list_per_page = 25
    list_display: Names = ("name", "title", "published", "changed_at")
    own_fields: Titled = ()
    own_views: Mapping[str, Any] = {"rotate": token_holder_actions.rotate}

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return token_holder_counts.WithFigures

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow only lookups by `id` and `list_filter`.

        With a lookup such as `token_digest__startswith`, a user could find a digest step by step.
        """
        is_shown = lookup.partition(LOOKUP_SEP)[0] in ("id", *self.list_filter)
        return is_shown and super().lookup_allowed(lookup, value, request)

    def figures_of(self, rows: list[Any]) -> Mapping[int, Any]:
        return token_holder_counts.read_producers(rows)

    def get_urls(self) -> list[URLPattern]:
        view, model = self.admin_site.admin_view, self.model._meta.model_name
        own = [
            path(f"<int:id>/{name}/", view(partial(act, self)), name=f"pulljobs_{model}_{name}")
            for name, act in self.own_views.items()
        ]
        return [*own, *super().get_urls()]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        titled: list[tuple[Any, Names]] = [(None, ("name", "title")), *self.own_fields]
        if obj is None or self.has_change_permission(request, obj):
            titled.append((_("Token"), ("token",)))
        return [(title, {"fields": fields}) for title, fields in titled]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        obj.new_secrets = self.set_new_secrets(obj, form, change)
        obj.save(using=settings().DATABASE)
        if isinstance(obj, Channel | Consumer):
            operating.wake(obj)
        if change:
            token_holder_actions.note_secrets(request, obj, obj.new_secrets)

    def set_new_secrets(
        self, token_holder: Any, form: Any, change: bool
    ) -> token_holder_actions.Secrets:
        """Set the new secrets of a row from its form, without saving the row, and return them.

        A new row gets a random token if the form has none.
        """
        chosen = form.cleaned_data.get("token", "")
        return (
            [(token_holder_actions.TOKEN, token_holder.set_token(chosen))]
            if chosen or not change
            else []
        )

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        return self._show_new_secrets(
            request, obj, super().response_add(request, obj, post_url_continue)
        )

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        return self._show_new_secrets(request, obj, super().response_change(request, obj))

    def _show_new_secrets(
        self, request: HttpRequest, token_holder: Any, answer: HttpResponse
    ) -> HttpResponse:
        """Return a page with the row's new secrets if it has some, else the answer itself.

        A popup closes with its form and can't show them, so a message advises to make a new token.
        """
        if token_holder.new_secrets and isinstance(answer, HttpResponseRedirect):
            return token_holder_actions.show_secrets(
                self, request, token_holder, token_holder.new_secrets, answer.url
            )
        if token_holder.new_secrets:
            messages.warning(
                request, _("Make a new token on the page of %s to see it.") % token_holder
            )
        return answer

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        token_holder = self.get_object(request, object_id)
        about = {} if token_holder is None else self.about(request, token_holder)
        return super().change_view(request, object_id, form_url, about | (extra_context or {}))

    def about(self, request: HttpRequest, token_holder: Any) -> dict[str, Any]:
        """Return the template context of the row's page: its figures and the permitted actions."""
        return {
            "figures": self.figures_of([token_holder])[token_holder.pk],
            "may_rotate": token_holder_actions.may(request, "rotate", token_holder),
            "may_pause": "pause" in self.own_views
            and token_holder_actions.may(request, "pause", token_holder),
        }

    @admin.display(description=_("messages"))
    def published(self, token_holder: Any) -> str:
        return str(token_holder.figures)


class PausableAdmin(TokenHolderAdmin):
    own_views: Mapping[str, Any] = {
        "rotate": token_holder_actions.rotate,
        "pause": token_holder_actions.pause,
        "resume": token_holder_actions.resume,
    }

    def about(self, request: HttpRequest, token_holder: Any) -> dict[str, Any]:
        until = token_holder_actions.pause_until(token_holder)
        now = nodes.clock(settings().DATABASE)
        paused = token_holder_actions.describe_pause(until, now) if until else ""
        links, of = Links(request), {str(self.model._meta.model_name): token_holder.pk}
        jobs = {state.value: links.jobs(**of, state=state.value) for state in LIVE}
        return super().about(request, token_holder) | {"paused": paused, "jobs": jobs}

    @admin.display(description=_("status"))
    def status(self, token_holder: Any) -> SafeString:
        return formats.status_badge(token_holder)

    @admin.display(description=_("queued"))
    def queued(self, token_holder: Any) -> str:
        return str(token_holder.figures.queued)

    @admin.display(description=_("due later"))
    def delayed(self, token_holder: Any) -> str:
        return str(token_holder.figures.delayed)

    @admin.display(description=_("in flight"))
    def in_flight(self, token_holder: Any) -> str:
        return str(token_holder.figures.in_flight)

    @admin.display(description=_("dead"))
    def dead(self, token_holder: Any) -> str:
        return str(token_holder.figures.dead)

    @admin.display(description=_("oldest"))
    def oldest(self, token_holder: Any) -> str:
        return str(token_holder.figures.oldest)

    @admin.display(description=_("rate"))
    def throughput(self, token_holder: Any) -> str:
        return str(token_holder.figures.rate)


NUMBERS: Names = ("queued", "delayed", "in_flight", "dead", "oldest", "throughput")
