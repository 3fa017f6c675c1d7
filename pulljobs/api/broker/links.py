"""Relative links to endpoints, wherever the API is mounted."""

from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse
from django.utils.encoding import escape_uri_path
from rest_framework.request import Request

from pulljobs.models import Channel, Consumer


def to(request: Request, endpoint: str, **names: str) -> str:
    """Empty for a name that no URL can bear, such as one with a slash."""
    match = request.resolver_match
    namespace = f"{match.namespace}:" if match and match.namespace else ""
    try:
        return reverse(f"{namespace}{endpoint}", kwargs=names)
    except NoReverseMatch:
        return ""


def to_channel(request: Request, endpoint: str, channel: Channel, **names: str) -> str:
    return to(request, endpoint, channel=channel.name, **names)


def to_consumer(request: Request, endpoint: str, consumer: Consumer, **names: str) -> str:
    return to(request, endpoint, channel=consumer.channel.name, consumer=consumer.name, **names)


def here(request: Request) -> str:
    """The path that was asked for, escaped."""
    return escape_uri_path(request.path)


def with_query(url: str, query: dict[str, object]) -> str:
    return f"{url}?{urlencode(query, doseq=True)}" if query else url
