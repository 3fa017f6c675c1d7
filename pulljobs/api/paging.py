"""`limit` and `next` of queued-jobs."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlencode

from django.utils.encoding import escape_uri_path
from rest_framework.request import Request

from pulljobs import ids
from pulljobs.api import exceptions
from pulljobs.storage.protocol import Place

DEFAULT_LIMIT: Final = 25
LARGEST_LIMIT: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_PLACE: Final = re.compile(r"(-?[0-9]{1,5})\.([0-9]{1,18})\.([0-9a-v]{20})")


def limit(request: Request) -> int:
    given = request.query_params.get("limit", "")
    if given and not _NUMBER.fullmatch(given):
        raise exceptions.bad_limit()
    return min(int(given or DEFAULT_LIMIT), LARGEST_LIMIT)


def after(request: Request) -> Place | None:
    """The job that the page before ended with."""
    given = request.query_params.get("next", "")
    if not given:
        return None
    try:
        return _place(given)
    except (ValueError, OverflowError) as error:
        raise exceptions.bad_page() from error


def link(request: Request, limit: int, last: Place) -> str:
    """A Link header to what follows that job, relative to where the API is mounted."""
    microseconds = (last.available_at - _EPOCH) // timedelta(microseconds=1)
    place = f"{last.priority}.{microseconds}.{ids.encode(last.id)}"
    query = urlencode({"limit": limit, "next": place})
    return f'<{escape_uri_path(request.path)}?{query}>; rel="next"'


def _place(given: str) -> Place:
    parts = _PLACE.fullmatch(given)
    if parts is None:
        raise ValueError(given)
    available_at = _EPOCH + timedelta(microseconds=int(parts[2]))
    return Place(int(parts[1]), available_at, ids.decode(parts[3]))
