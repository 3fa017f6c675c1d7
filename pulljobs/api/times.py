"""Times as HTTP and the protocol write them; always UTC."""

import re
from datetime import UTC, datetime
from typing import Final

from django.utils.http import http_date as _http_date

_RFC_3339: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)


def rfc_3339(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def http_date(moment: datetime) -> str:
    """To the second, rounded down."""
    return _http_date(int(moment.timestamp()))


def parse_rfc_3339(text: str) -> datetime:
    """ValueError for any other form, and for what is no time in UTC."""
    if not _RFC_3339.fullmatch(text):
        raise ValueError(f"{text!r} is no time such as 2030-01-31T12:00:00Z.")
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} is no time in UTC.") from error
