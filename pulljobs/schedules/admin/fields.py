"""Fields of the form of a schedule: intervals such as 15m, times, headers and payloads."""

from argparse import ArgumentTypeError
from datetime import datetime, timedelta
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from pulljobs.management.parsing import parse_duration

UNITS: Final = (
    ("d", timedelta(days=1)),
    ("h", timedelta(hours=1)),
    ("m", timedelta(minutes=1)),
    ("s", timedelta(seconds=1)),
)
YEARS: Final = range(1970, 9000)


class IntervalField(forms.CharField):
    """Field of a timedelta, written as in commands: 90 (seconds), 15m, 12h or 30d."""

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        try:
            return parse_duration(text) if text else None
        except ArgumentTypeError as error:
            raise ValidationError(f"{error}.") from error

    def prepare_value(self, value: Any) -> Any:
        return format_interval(value) if isinstance(value, timedelta) else value


class SiteTimeField(forms.DateTimeField):
    """Field of a time in Django's current time zone."""

    widget = forms.DateTimeInput(
        format="%Y-%m-%dT%H:%M:%S", attrs={"type": "datetime-local", "step": "1"}
    )

    def to_python(self, value: Any) -> datetime | None:
        at = super().to_python(value)
        if at is not None and at.year not in YEARS:
            raise ValidationError(
                _("Choose a year from %(first)s to %(last)s.")
                % {"first": YEARS[0], "last": YEARS[-1]}
            )
        return at


class PayloadField(forms.CharField):
    """Field of a text payload. It turns the CRLF of browsers into LF."""

    widget = forms.Textarea(attrs={"rows": 6, "spellcheck": "false"})

    def __init__(self, **options: Any) -> None:
        super().__init__(strip=False, **options)

    def to_python(self, value: Any) -> Any:
        return _unix_lines(super().to_python(value) or "")

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return True if the text differs in more than its line ends."""
        return _unix_lines(initial or "") != _unix_lines(data or "")


class HeadersField(forms.CharField):
    """Field of the headers of a message, a dict: one `name: value` per line."""

    widget = forms.Textarea(attrs={"rows": 3, "spellcheck": "false"})

    def to_python(self, value: Any) -> Any:
        headers: dict[str, str] = {}
        for line in (super().to_python(value) or "").splitlines():
            name, colon, text = line.partition(":")
            if not line.strip():
                continue
            if not colon or name.strip() in headers:
                raise ValidationError(
                    _("%(line)r can't be used: write each header once, as name: value.")
                    % {"line": line}
                )
            headers[name.strip()] = text.strip()
        return headers

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return "\n".join(f"{name}: {text}" for name, text in value.items())


def format_interval(interval: timedelta) -> str:
    """Return an interval as text for `parse_duration`, in the largest unit without remainder."""
    for name, unit in UNITS:
        if interval and not interval % unit:
            return f"{interval // unit}{name}"
    return f"{interval.total_seconds():f}".rstrip("0").rstrip(".") + "s"


def _unix_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
