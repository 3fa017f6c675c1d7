"""Links in answers of the broker protocol: paths of resources, pages, their cursors and limits."""

import base64
import binascii
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.encoding import escape_uri_path
from rest_framework.request import Request

from pulljobs.api import exceptions
from pulljobs.api.bodies import render_time
from pulljobs.api.broker.bodies import PagesBody
from pulljobs.ids import LARGEST_ID
from pulljobs.models import Channel, Consumer
from pulljobs.storage.pages import Cut

DEFAULT_LIMIT: Final = 25
LARGEST_LIMIT: Final = 100
_NUMBER: Final = re.compile(r"0*+([0-9]{0,4}+)[0-9]*+")
"""Whole number, of which the first four digits suffice to see if it is above LARGEST_LIMIT.

It gives back no digit (`+`): the time for thousands of zeros would grow with their square.
"""


class CursorRow(NamedTuple):
    """Row at which a page begins or ends. As a cursor in a link it is base64 of `id|time`."""

    id: int
    made_at: datetime


def link_to(request: Request, endpoint: str, **names: str) -> str:
    """Return the path of the route named `endpoint`, under the prefix at which the API is mounted.

    The path is empty if a URL can't contain one of the names, for example one with a slash.
    """
    match = request.resolver_match
    namespace = f"{match.namespace}:" if match and match.namespace else ""
    try:
        return reverse(f"{namespace}{endpoint}", kwargs=names)
    except NoReverseMatch:
        return ""


def link_in_channel(request: Request, endpoint: str, channel: Channel, **names: str) -> str:
    """Return the path of the route `endpoint` for a channel, or "" if a URL can't hold a name."""
    return link_to(request, endpoint, channel=channel.name, **names)


def link_in_consumer(request: Request, endpoint: str, consumer: Consumer, **names: str) -> str:
    """Return the path of the route `endpoint` for a consumer, or "" if a URL can't hold a name."""
    return link_in_channel(request, endpoint, consumer.channel, consumer=consumer.name, **names)


def path_of(request: HttpRequest | Request) -> str:
    """Return the path at which the client sees the route of a request.

    `request.path` lacks FORCE_SCRIPT_NAME under ASGI if a proxy takes that prefix away.
    """
    prefix: str = request.META["SCRIPT_NAME"]
    return prefix.rstrip("/") + request.path_info


def link_here(request: Request, query: dict[str, object]) -> str:
    """Return a link to the path of a request, with other query parameters."""
    return add_query(escape_uri_path(path_of(request)), query)


def add_query(url: str, query: dict[str, object]) -> str:
    """Return a path with these query parameters, or the path itself without any."""
    return f"{url}?{urlencode(query, doseq=True)}" if query else url


def read_limit(request: Request, default: int = DEFAULT_LIMIT) -> int:
    """Return the query parameter limit, or `default`, at most 100.

    Raise a refusal (400) if it is no whole number.
    """
    given = request.query_params.get("limit", "") or str(default)
    number = _NUMBER.fullmatch(given)
    if number is None:
        raise exceptions.bad_limit()
    return min(int(number[1] or 0), LARGEST_LIMIT)


def read_cut(request: Request) -> Cut:
    """Return the bounds of the page that the parameters `next` and `previous` ask for.

    An unreadable cursor counts as absent. Raise a refusal (400) if the request has both.
    """
    after, before = (request.query_params.get(name, "") for name in ("next", "previous"))
    if after and before:
        raise exceptions.both_cursors()
    return Cut(below=_parse_cursor(after), above=_parse_cursor(before))


def link_pages(request: Request, rows: Sequence[CursorRow]) -> PagesBody:
    """Return the links to the pages after and before the page with these rows, newest first.

    Both links are present, even if they lead to an empty page. An empty page itself has none.
    """
    if not rows:
        return {}
    statuses = request.query_params.getlist("status")
    query: dict[str, object] = {"status": statuses} if statuses else {}
    return {
        "next": link_here(request, {**query, "next": _render_cursor(rows[-1])}),
        "previous": link_here(request, {**query, "previous": _render_cursor(rows[0])}),
    }


def _render_cursor(row: CursorRow) -> str:
    return base64.b64encode(f"{row.id}|{render_time(row.made_at)}".encode()).decode()


def _parse_cursor(cursor: str) -> int | None:
    try:
        number, bar, _time = base64.b64decode(cursor, validate=True).decode("ascii").partition("|")
    except (binascii.Error, ValueError):
        return None
    is_id = bar and number.isdecimal() and len(number) < 20 and int(number) <= LARGEST_ID
    return int(number) if is_id else None
