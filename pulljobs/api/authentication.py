"""Authentication by tokens, in the protocol's order of checks."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar, cast

from django.apps import apps
from django.contrib.auth.models import AnonymousUser
from django.utils.module_loading import import_string
from rest_framework.authentication import BaseAuthentication, TokenAuthentication
from rest_framework.request import Request

from pulljobs.api import access_refusals, exceptions
from pulljobs.conf import settings
from pulljobs.models import Channel, Consumer, Producer
from pulljobs.models.token_holders import TokenHolder
from pulljobs.storage import protocol
from pulljobs.storage.protocol import Caller, ConsumerPath

CHANNEL_TOKEN: Final = "X-Broker-Channel-Token"
CONSUMER_TOKEN: Final = "X-Broker-Consumer-Token"
LEASE_TOKEN: Final = "X-Broker-Lease-Token"
PRODUCER: Final = "X-Broker-Producer-ID"
PRODUCER_TOKEN: Final = "X-Broker-Producer-Token"
_TOKEN_KEYS: Final = {
    name: f"HTTP_{name.upper().replace('-', '_')}" for name in (CHANNEL_TOKEN, CONSUMER_TOKEN)
}
NUL: Final = "\x00"
NAMELESS: Final = "anonymous (HTTP)"
"""Caller without a name, in the audit trail. No user has such a name by default."""
P = TypeVar("P", Channel, Producer)


class Publisher(NamedTuple):
    """Producer that a request authenticated, and the channel it publishes on."""

    channel: Channel
    producer: Producer


class ConsumerTokens(BaseAuthentication):
    """Authentication as the consumer in the URL, by the tokens of its channel and its own."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Consumer]:
        names = request.parser_context["kwargs"]
        consumer = authenticate_consumer(request.headers, names["channel"], names["consumer"])
        return AnonymousUser(), consumer


class DeleterTokens(BaseAuthentication):
    """Authentication for deleting jobs: the consumer's tokens, with 404 for an unknown consumer."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Consumer]:
        names = request.parser_context["kwargs"]
        consumer = authenticate_consumer(
            request.headers, names["channel"], names["consumer"], exceptions.no_consumer
        )
        return AnonymousUser(), consumer


class ProducerTokens(BaseAuthentication):
    """Authentication as a producer, by the token of the channel and its own."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Publisher]:
        channel = authenticate_channel(request.headers, request.parser_context["kwargs"]["channel"])
        producer = find_row(Producer, read_header(request.headers, PRODUCER))
        if producer is None:
            raise access_refusals.unknown_producer()
        if not has_token(producer, request.headers.get(PRODUCER_TOKEN, "")):
            raise access_refusals.wrong_producer_token()
        return AnonymousUser(), Publisher(channel, producer)


def authenticate_consumer(
    headers: Mapping[str, str],
    channel_name: str,
    consumer_name: str,
    unknown: Callable[[], Exception] = access_refusals.unknown_consumer,
) -> Consumer:
    """Return the consumer with its channel. Raise a refusal unless both tokens are right."""
    path = storable_path(channel_name, consumer_name)
    caller = protocol.find_callers(settings().DATABASE, [path]).get(path)
    return check_consumer(headers, caller, unknown)


def tokens_of(meta: Mapping[str, str]) -> dict[str, str]:
    """Return the tokens among the headers in `request.META`, by the names of the headers.

    `request.headers` parses all headers, which takes longer than the rest of authentication.
    """
    return {name: meta[key] for name, key in _TOKEN_KEYS.items() if key in meta}


def storable_path(channel_name: str, consumer_name: str) -> ConsumerPath:
    """Return the names as the database can compare them.

    PostgreSQL can't store a NUL: no row has such a name, nor the empty one.
    """
    return (
        "" if NUL in channel_name else channel_name,
        "" if NUL in consumer_name else consumer_name,
    )


def check_consumer(
    headers: Mapping[str, str],
    caller: Caller | None,
    unknown: Callable[[], Exception] = access_refusals.unknown_consumer,
) -> Consumer:
    """Return the consumer of a caller. Raise a refusal unless both tokens are right."""
    if caller is None:
        raise access_refusals.unknown_channel()
    channel, consumer = caller
    _check(channel, headers)
    if consumer is None:
        raise unknown()
    if not has_token(consumer, headers.get(CONSUMER_TOKEN, "")):
        raise access_refusals.wrong_consumer_token()
    return consumer


def authenticate_channel(headers: Mapping[str, str], name: str) -> Channel:
    """Return the channel if the headers have its token. Otherwise raise a refusal."""
    channel = find_row(Channel, name)
    if channel is None:
        raise access_refusals.unknown_channel()
    _check(channel, headers)
    return channel


def _check(channel: Channel, headers: Mapping[str, str]) -> None:
    if not has_token(channel, headers.get(CHANNEL_TOKEN, "")):
        raise access_refusals.wrong_channel_token()


def has_token(row: TokenHolder, token: str) -> bool:
    """Return True if it is the token of the row, or if the project requires no tokens."""
    return not settings().TOKENS_REQUIRED or row.has_token(token)


def user_authenticators() -> list[BaseAuthentication]:
    """Return the authenticators of Django users that the project sets.

    TokenAuthentication is left out where the app of its tokens is not installed.
    """
    classes = map(import_string, settings().API_AUTHENTICATION)
    return [cls() for cls in classes if cls is not TokenAuthentication or has_authtoken()]


def has_authtoken() -> bool:
    """Return True if DRF's app of tokens is installed."""
    return apps.is_installed("rest_framework.authtoken")


def user_name(request: Request) -> str:
    """Return the user's name for the audit trail.

    PULLJOBS['API_ACCESS'] may permit callers without one: they are NAMELESS.
    """
    return request.user.get_username() or NAMELESS


def caller(request: Request) -> Consumer:
    """Return the consumer that the request authenticated."""
    return cast("Consumer", request.auth)


def publisher(request: Request) -> Publisher:
    """Return the producer that the request authenticated, with the channel."""
    return cast("Publisher", request.auth)


def find_row(model: type[P], name: str) -> P | None:
    """Find a row by its exact name."""
    rows = model._default_manager.using(settings().DATABASE)
    return None if NUL in name else rows.filter(name=name).first()


def find_consumer(channel: Channel, name: str) -> Consumer | None:
    """Find a consumer that is not deleted, and set its channel."""
    if NUL in name:
        return None
    rows = Consumer.objects.using(settings().DATABASE).filter(deleted_at=None)
    consumer = rows.filter(channel=channel, name=name).first()
    if consumer is not None:
        consumer.channel = channel
    return consumer


def read_header(headers: Mapping[str, str], name: str) -> str:
    """Read a header as UTF-8, which clients send and servers decode as Latin-1."""
    value = headers.get(name, "")
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value
