"""Form of a schedule in the admin. It checks as `create` and `update` do, which write the row."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _

from pulljobs.admin.guarded_forms import GuardedForm
from pulljobs.conf import settings
from pulljobs.engine.validation import JSON
from pulljobs.errors import InvalidSchedule, PayloadTooLarge, PulljobsError
from pulljobs.models import Channel, Producer
from pulljobs.schedules.admin.fields import (
    HeadersField,
    IntervalField,
    PayloadField,
    SiteTimeField,
)
from pulljobs.schedules.definitions import HIGHEST_BOUND, RULE_FIELDS, Definition
from pulljobs.schedules.models import LONGEST_NAME, Missed, Overlap, Schedule
from pulljobs.schedules.reading import SHOWN_SLOTS, UpcomingSlot, format_slots
from pulljobs.schedules.rule_checks import LONGEST_CRON
from pulljobs.schedules.rules import Rule, make_rule
from pulljobs.storage import nodes

PREVIEW: Final = "_preview"
"""Name of the button that shows the next slots and saves nothing."""
CONTENT: Final = ("payload", "content_type", "headers")
"""Fields for users with the permission to see payloads."""
PLAIN: Final = ("name", *RULE_FIELDS, "missed", "missed_bound", "misfire_grace", "overlap", "key",
    "priority", "cost", "producer", "headers")  # fmt: skip
"""Fields whose name and value are those of an option of `create`."""
CLASSES: Final[Mapping[type[forms.Widget], str]] = {
    forms.TextInput: "vTextField",
    forms.Textarea: "vLargeTextField",
    forms.NumberInput: "vIntegerField",
}
"""CSS classes of Django's admin by which it sizes widgets."""
SITE_TIME: Final = _("In the time zone of this site.")


class ScheduleForm(GuardedForm):
    name = forms.CharField(max_length=LONGEST_NAME, help_text=_("Without slashes."))
    channel = forms.ModelChoiceField(Channel.objects.none(), to_field_name="name")
    cron = forms.CharField(
        max_length=LONGEST_CRON,
        required=False,
        label=_("Cron rule"),
        help_text=_(
            "Minute, hour, day of month, month, day of week: 0 6 * * 1-5 is at 6 on weekdays. "
            "With six fields the first is the second."
        ),
    )
    every = IntervalField(
        required=False,
        label=_("Or every"),
        help_text=_("In place of a cron rule: 90s, 15m, 12h or 30d, in real time."),
    )
    timezone = forms.CharField(
        max_length=64,
        initial="UTC",
        label=_("Time zone"),
        help_text=_("IANA name, such as Europe/Berlin."),
    )
    starts_at = SiteTimeField(required=False, label=_("Starts at"), help_text=SITE_TIME)
    ends_at = SiteTimeField(required=False, label=_("Ends at"), help_text=SITE_TIME)
    jitter = IntervalField(
        required=False,
        label=_("Jitter"),
        help_text=_("Delays each slot by a fixed part of it, such as 30s."),
    )
    missed = forms.ChoiceField(
        choices=Missed.choices, initial=Missed.LATEST, label=_("Missed slots")
    )
    missed_bound = forms.IntegerField(
        min_value=1, max_value=HIGHEST_BOUND, initial=100, label=_("Bound of missed slots")
    )
    misfire_grace = IntervalField(
        required=False,
        label=_("Grace"),
        help_text=_("A slot that is later than this is skipped, such as 1h."),
    )
    overlap = forms.ChoiceField(
        choices=Overlap.choices,
        initial=Overlap.ALLOW,
        label=_("While a job of the previous message is live"),
    )
    payload = PayloadField(required=False, help_text=_("Empty JSON is null."))
    content_type = forms.CharField(max_length=255, initial=JSON, label=_("Content type"))
    headers = HeadersField(required=False, help_text=_("One header per line, as name: value."))
    key = forms.CharField(max_length=255, required=False, empty_value=None)
    priority = forms.IntegerField(initial=0)
    cost = forms.IntegerField(
        initial=1, help_text=_("Tokens of a rate that each of its jobs takes.")
    )
    producer = forms.ModelChoiceField(Producer.objects.none(), required=False)
    rule: Rule | None = None
    """Rule that the fields of the form make, or None if it is not valid."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        using = settings().DATABASE
        for name, model in (("channel", Channel), ("producer", Producer)):
            if name in self.fields:
                choice: Any = self.fields[name]
                choice.queryset = model._default_manager.using(using).order_by("name")
        for field in self.fields.values():
            field.widget.attrs.setdefault("class", CLASSES.get(type(field.widget), ""))
        if self.instance.pk is not None:
            self.initial.update(initial_of(self.instance))
        if self.instance.is_declared and "name" in self.fields:
            self.fields["name"].disabled = True
            self.fields["name"].help_text = _("Code declares it by this name.")

    def is_valid(self) -> bool:
        """Return True if the form is valid and the user pressed save.

        If the user pressed the button that shows the next slots, the admin shows the form again.
        """
        return super().is_valid() and PREVIEW not in self.data

    def clean_jitter(self) -> Any:
        return self.cleaned_data["jitter"] or timedelta()

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        rows = Schedule.objects.using(settings().DATABASE).filter(name=name)
        if rows.exclude(pk=self.instance.pk).exists():
            raise ValidationError(_("There is a schedule of that name already."))
        return name

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if cleaned.get("payload") and cleaned.get("content_type") == JSON:
            try:
                json.loads(cleaned["payload"], parse_constant=_refuse_constant)
            except (ValueError, RecursionError) as error:
                self.add_error("payload", _("This is no JSON: %s.") % error)
        return cleaned

    def _post_clean(self) -> None:
        """Check the rule and the other options, without setting attributes of the row.

        A ModelForm would set them here, but `create` or `update` writes the row.
        """
        if set(RULE_FIELDS) <= self.cleaned_data.keys():
            self._check(self._check_rule)
        if not self.errors:
            self._check(self._check_definition)

    def _check(self, check: Callable[[], None]) -> None:
        try:
            check()
        except InvalidSchedule as error:
            self.add_error(error.field if error.field in self.fields else None, str(error))
        except PayloadTooLarge as error:
            self.add_error("payload" if "payload" in self.fields else None, str(error))
        except PulljobsError as error:
            self.add_error(None, str(error))

    def _check_rule(self) -> None:
        if self.instance.pk is not None and not set(RULE_FIELDS) & set(self.changed_data):
            self.rule = self.instance.rule
        else:
            self.rule = make_rule(
                now=self.now, **{name: self.cleaned_data[name] for name in RULE_FIELDS}
            )

    def _check_definition(self) -> None:
        assert self.rule is not None
        if self.instance.pk is None:
            definition = Definition.make(self.options())
        else:
            definition = Definition.from_row(self.instance).changed(self.changed_options())
        definition.columns(self.rule)

    @cached_property
    def now(self) -> datetime:
        """Present time by the database's clock, read once for a form."""
        return nodes.clock(settings().DATABASE).astimezone(UTC)

    def preview(self) -> list[UpcomingSlot]:
        """Return the next ten slots of the rule in the form, or no slot if the rule is invalid."""
        if self.rule is None or self.rule.problem:
            return []
        slots = islice(self.rule.slots_after(self.now), SHOWN_SLOTS)
        return list(format_slots(self.rule, self.now, slots))

    def options(self) -> dict[str, Any]:
        """Return the values of the form as arguments of `create`."""
        cleaned: Mapping[str, Any] = self.cleaned_data
        options = {name: cleaned[name] for name in PLAIN if name in cleaned}
        options["channel"] = cleaned["channel"].name
        if "payload" in cleaned:
            options |= _content(cleaned["payload"], cleaned["content_type"])
        return options

    def changed_options(self) -> dict[str, Any]:
        """Return the values that differ from the row, as arguments of `update`.

        If one of cron and every differs, both are returned. So are payload and content type.
        """
        changed = set(self.changed_data)
        for together in ({"cron", "every"}, {"payload", "content_type"}):
            if changed & together:
                changed |= together
        return {name: value for name, value in self.options().items() if name in changed}


def initial_of(row: Schedule) -> dict[str, Any]:
    """Return the initial values of the form's fields for a row."""
    values = {name: getattr(row, name) for name in (*PLAIN, "content_type")}
    return values | {
        "channel": row.channel_name,
        "producer": row.producer_id,
        "jitter": row.jitter or None,
        "payload": read_text(row) or "",
    }


def read_text(row: Schedule) -> str | None:
    """Return the payload of a schedule as text, or None if it is not UTF-8 or has a NUL."""
    try:
        text = bytes(row.payload).decode()
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else text


def _refuse_constant(name: str) -> None:
    """Raise ValueError for NaN and Infinity, which only Python parses."""
    raise ValueError(f"{name} is none of its values")


def _content(text: str, content_type: str) -> dict[str, Any]:
    if not text and content_type == JSON:
        return {"payload": None, "content_type": None}
    return {"payload": text.encode(), "content_type": content_type}
