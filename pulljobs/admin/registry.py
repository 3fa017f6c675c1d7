"""Lists and forms of channels, producers and consumers."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from pulljobs import auditing, encryption, registering
from pulljobs.admin import (
    clients,
    formats,
    key_weights,
    token_holder_actions,
    token_holder_counts,
)
from pulljobs.admin.links import linked
from pulljobs.admin.token_holders import (
    NUMBERS,
    Names,
    PausableAdmin,
    TokenHolderAdmin,
    TokenHolderForm,
)
from pulljobs.conf import settings
from pulljobs.models import AuditEntry, Channel, Consumer, Producer


@admin.register(Channel)
class ChannelAdmin(PausableAdmin):
    list_display = ("name", "title", "status", *NUMBERS)
    own_fields = ((_("Behaviour"), ("dedupe_window",)),)

    def figures_of(self, rows: list[Any]) -> Mapping[int, Any]:
        return token_holder_counts.read_channels(rows)


@admin.register(Producer)
class ProducerAdmin(TokenHolderAdmin):
    pass


class ConsumerForm(TokenHolderForm):
    sign = forms.BooleanField(
        required=False,
        label=_("New signing secret"),
        help_text=_(
            "Deliveries are signed with it, and with the previous secret until the next is set. "
            "It is shown once."
        ),
    )

    def clean_sign(self) -> bool:
        wanted = bool(self.cleaned_data["sign"])
        if wanted and not encryption.is_available():
            raise ValidationError(_("Install the package cryptography first."))
        return wanted


@admin.register(Consumer)
class ConsumerAdmin(PausableAdmin):
    form = ConsumerForm
    list_display = ("subscription", "status", *NUMBERS)
    list_filter = ("channel", "type")
    list_select_related = ("channel",)
    ordering: ClassVar[Names] = ("channel__name", "name")
    actions = ("restore",)
    own_views: Mapping[str, Any] = {
        **PausableAdmin.own_views,
        "weights": key_weights.show_weights,
    }
    formfield_overrides: ClassVar[Any] = {models.URLField: {"assume_scheme": "https"}}
    own_fields = (
        (_("Subscription"), ("channel", "type", "callback_url", "sign")),
        (_("Lease"), ("lease_duration", "protocol_lease_duration")),
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
        (
            _("Limits"),
            (
                "max_in_flight",
                "rate",
                "rate_burst",
                "rate_window",
                "limit_group",
                "max_in_flight_per_key",
                "rate_per_key",
                "fair_by_key",
                "max_waiting",
            ),
        ),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Return the read-only fields: the channel of an existing consumer, none of a new one.

        The messages of the consumer's jobs are in that channel.
        """
        return ("channel_link",) if obj else ()

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        titled = super().get_fieldsets(request, obj)
        if obj is None:
            return titled
        shown = {"channel": "channel_link"}
        if not self.has_change_permission(request, obj):
            shown |= {"callback_url": "masked_url", "limit_group": "group_link"}
        return [
            (title, {"fields": [shown.get(name, name) for name in options["fields"]]})
            for title, options in titled
        ]

    @admin.display(description=_("channel"))
    def channel_link(self, consumer: Any) -> SafeString | str:
        """Return the name of the channel, with a link if the user may see its page.

        Django would link the field for all users.
        """
        return linked(consumer.links.row(consumer.channel), consumer.channel)

    @admin.display(description=_("limit group"))
    def group_link(self, consumer: Any) -> SafeString | str:
        group = consumer.limit_group
        return formats.NOTHING if group is None else linked(consumer.links.row(group), group)

    @admin.display(description=_("callback url"))
    def masked_url(self, consumer: Consumer) -> str:
        return registering.masked(consumer.callback_url)

    def set_new_secrets(
        self, token_holder: Any, form: Any, change: bool
    ) -> token_holder_actions.Secrets:
        secrets = super().set_new_secrets(token_holder, form, change)
        if form.cleaned_data.get("sign"):
            secrets.append((token_holder_actions.SIGNING_SECRET, token_holder.set_signing_secret()))
        return secrets

    def figures_of(self, rows: list[Any]) -> Mapping[int, Any]:
        return token_holder_counts.read_consumers(rows)

    def about(self, request: HttpRequest, token_holder: Any) -> dict[str, Any]:
        newest = clients.newest_of(token_holder, request)
        return super().about(request, token_holder) | {"clients": newest}

    @admin.display(description=_("channel / consumer"), ordering="name")
    def subscription(self, consumer: Consumer) -> str:
        return f"{consumer.channel} / {consumer}"

    def delete_model(self, request: HttpRequest, obj: Consumer) -> None:
        self.delete_queryset(request, Consumer.objects.using(settings().DATABASE).filter(pk=obj.pk))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Consumer]) -> None:
        """Mark consumers as deleted, so that they get and claim no more jobs.

        Their rows, jobs and history stay, and `restore` removes the mark.
        """
        queryset.filter(deleted_at=None).update(deleted_at=Now())

    @admin.action(description=_("Restore deleted consumers"), permissions=["change"])
    def restore(self, request: HttpRequest, queryset: QuerySet[Consumer]) -> None:
        deleted = list(queryset.exclude(deleted_at=None).select_related("channel"))
        rows = queryset.filter(pk__in=[consumer.pk for consumer in deleted])
        # Messages that were published while it was deleted gave it no jobs.
        restored = rows.update(deleted_at=None, changed_at=Now())
        if restored:
            subject = "deleted " + ", ".join(each.describe() for each in deleted)
            act, by = AuditEntry.Act.RESUME, request.user.get_username()
            auditing.note(act, by=by, subject=subject, done=restored)
        self.message_user(request, _("%d restored.") % restored)
