"""Parts of the pages on which a user of the admin confirms an action."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.core import signing
from django.http import HttpRequest
from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_aware

from pulljobs.conf import settings
from pulljobs.errors import PulljobsError
from pulljobs.storage import nodes

PREVIEW_LASTS: Final = timedelta(days=1)


def read_clock() -> str:
    """Return the present time by the database's clock, as text for a hidden field of a page."""
    return nodes.clock(settings().DATABASE).isoformat()


class OpenedField(forms.CharField):
    """Hidden field `opened` of a form, with the time when its page was opened."""

    def __init__(self) -> None:
        # Without autocomplete="off", Firefox keeps the old time when the page is loaded again.
        widget = forms.HiddenInput(attrs={"autocomplete": "off"})
        super().__init__(required=False, label="", widget=widget, initial=read_clock)


def opened_at(request: HttpRequest) -> datetime | None:
    """Return when the user opened the page from which this request comes, or None if unknown.

    Callers do not repeat an action that was done since then: its button was pressed twice.
    """
    return parse_time(request.POST.get("opened", ""))


def parse_time(text: str) -> datetime | None:
    """Return the aware time in an ISO 8601 text, or None for other text."""
    try:
        at = parse_datetime(text)
    except ValueError:
        return None
    return at if at is not None and is_aware(at) else None


@contextmanager
def reporting_errors(request: HttpRequest, *others: type[Exception]) -> Iterator[None]:
    """Catch an error of the block, and show it to the user on the next page.

    Only PulljobsError and `others` are caught, for example after a change by another user.
    """
    kinds: tuple[type[Exception], ...] = (PulljobsError, *others)
    try:
        yield
    except kinds as error:
        messages.error(request, str(error))


def sign_preview(shown: Any, salt: str) -> str:
    """Return a signed text of what a preview shows, which the form sends back when confirmed.

    `shown` is any value that fits JSON. The signature covers `salt`: user, action and subject.
    """
    return signing.dumps(shown, salt=f"pulljobs {salt}")


def read_preview(request: HttpRequest, salt: str) -> Any:
    """Return what the preview showed that the user confirms, or None if it is unknown.

    It is unknown if its signature is wrong, has another salt, or is more than a day old.
    """
    given = request.POST.get("preview_token", "")
    try:
        return signing.loads(given, salt=f"pulljobs {salt}", max_age=PREVIEW_LASTS)
    except signing.BadSignature:
        return None
