"""Parts of the pages on which a user of the admin confirms an action."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from django.contrib import messages
from django.core import signing
from django.http import HttpRequest

from pulljobs.errors import PulljobsError

PREVIEW_LASTS: Final = timedelta(days=1)


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
