"""Channels, producers and consumers. A token is told once, when it is set."""

from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _

from pulljobs import operating, sealing
from pulljobs.conf import settings
from pulljobs.models import Channel, Consumer, Producer
from pulljobs.models.registry import Party

TOKEN = RegexValidator(r"\A[\x21-\x7e]+\Z", _("Use ASCII letters, digits and signs, no spaces."))


Names = tuple[str, ...]
Titled = tuple[tuple[Any, Names], ...]


class PartyForm(forms.ModelForm):  # type: ignore[type-arg]  # generic for mypy only
    token = forms.CharField(
        required=False,
        max_length=255,
        validators=[TOKEN],
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=_("Only to set one of your own."),
    )
    rotate = forms.BooleanField(
        required=False,
        label=_("New random token"),
        help_text=_("The old one stops working at once; the new one is shown once."),
    )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("token") and cleaned.get("rotate"):
            self.add_error("rotate", _("Give a token or ask for a random one, not both."))
        if cleaned.get("type") == Consumer.Type.PUSH and not cleaned.get("callback_url"):
            self.add_error("callback_url", _("A push consumer needs the URL to push to."))
        return cleaned


class PartyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # generic for mypy only
    form = PartyForm
    search_fields = ("name", "title")
    ordering: ClassVar[Names] = ("name",)
    list_display: Names = ("name", "title", "changed_at")
    own_fields: Titled = ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).using(settings().DATABASE)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        titled: list[tuple[Any, Names]] = [(None, ("name", "title")), *self.own_fields]
        if obj is None:
            titled.append((_("Token"), ("token",)))
        elif self.has_change_permission(request, obj):
            titled.append((_("Token"), ("rotate", "token")))
        return [(title, {"fields": fields}) for title, fields in titled]

    def save_model(self, request: HttpRequest, obj: Party, form: Any, change: bool) -> None:
        chosen = form.cleaned_data.get("token", "")
        told = not change or chosen or form.cleaned_data.get("rotate")
        token = obj.set_token(chosen) if told else ""
        obj.save(using=settings().DATABASE)
        if isinstance(obj, Channel | Consumer):
            operating.wake(obj)
        if token:
            messages.warning(
                request, _("Token of %s: %s Keep it now, it is not shown again.") % (obj, token)
            )


@admin.register(Channel)
class ChannelAdmin(PartyAdmin):
    list_display = ("name", "title", "paused_until", "changed_at")
    own_fields = ((_("Behaviour"), ("dedupe_window", "paused_until")),)


@admin.register(Producer)
class ProducerAdmin(PartyAdmin):
    pass


class ConsumerForm(PartyForm):
    sign = forms.BooleanField(
        required=False,
        label=_("New signing secret"),
        help_text=_(
            "What is pushed is signed by it, and by the one before until the next; shown once."
        ),
    )

    def clean_sign(self) -> bool:
        wanted = bool(self.cleaned_data["sign"])
        if wanted and not sealing.is_available():
            raise ValidationError(_("Install the package cryptography first."))
        return wanted


@admin.register(Consumer)
class ConsumerAdmin(PartyAdmin):
    form = ConsumerForm
    list_display = (
        "name",
        "channel",
        "type",
        "retry_strategy",
        "max_retries",
        "paused_until",
        "deleted_at",
    )
    list_filter = ("channel", "type")
    list_select_related = ("channel",)
    ordering: ClassVar[Names] = ("channel__name", "name")
    actions = ("restore",)
    formfield_overrides: ClassVar[Any] = {models.URLField: {"assume_scheme": "https"}}
    own_fields = (
        (_("Subscription"), ("channel", "type", "callback_url", "sign", "paused_until")),
        (_("Lease"), ("lease", "protocol_lease")),
        (
            _("Retries"),
            ("retry_strategy", "max_retries", "retry_jitter", "max_total_delay", "max_deliveries"),
        ),
        (
            _("Keys"),
            (
                "exclusive_keys",
                "hold_key_on_retry",
                "max_queued_per_key",
                "key_overflow",
                "key_limit_counts",
            ),
        ),
        (_("Limits"), ("max_in_flight", "max_waiting")),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Its jobs are those of its channel's messages, so it stays there."""
        return ("channel",) if obj else ()

    def save_model(self, request: HttpRequest, obj: Party, form: Any, change: bool) -> None:
        secret = ""
        if isinstance(obj, Consumer) and form.cleaned_data.get("sign"):
            secret = obj.set_signing_secret()
        super().save_model(request, obj, form, change)
        if secret:
            messages.warning(
                request,
                _("Signing secret of %s: %s Keep it now, it is not shown again.") % (obj, secret),
            )

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        consumer = self.get_object(request, object_id)
        stats = operating.stats(consumer) if consumer else None
        context = (extra_context or {}) | {"stats": stats}
        return super().change_view(request, object_id, form_url, context)

    def delete_model(self, request: HttpRequest, obj: Consumer) -> None:
        self.delete_queryset(request, Consumer.objects.using(settings().DATABASE).filter(pk=obj.pk))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Consumer]) -> None:
        """It gets no jobs and can take none any more; those it has, and its history, stay."""
        queryset.filter(deleted_at=None).update(deleted_at=Now())

    @admin.action(description=_("Restore deleted consumers"), permissions=["change"])
    def restore(self, request: HttpRequest, queryset: QuerySet[Consumer]) -> None:
        restored = queryset.exclude(deleted_at=None).update(deleted_at=None)
        self.message_user(request, _("%d restored.") % restored)
