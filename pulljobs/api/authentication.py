"""Authentication of producers and consumers by their tokens, and of Django's users.

The broker protocol prescribes which check comes first, and the status of each refusal.
"""

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
from pulljobs.storage.protocol import Caller, ConsumerNames

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
"""Name of callers without one in the audit trail. Django's default user names have no spaces."""
P = TypeVar("P", Channel, Producer)


class Publisher(NamedTuple):
    """Producer that sent a request, and the channel on which it publishes."""

    channel: Channel
    producer: Producer


class ConsumerTokens(BaseAuthentication):
    """Authentication of the consumer in the URL: by the token of its channel and its own token."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Consumer]:
        names = request.parser_context["kwargs"]
        consumer = authenticate_consumer(request.headers, names["channel"], names["consumer"])
        return AnonymousUser(), consumer


class DeleterTokens(BaseAuthentication):
    """Authentication of a consumer that deletes DEAD jobs, by its channel's and its own token.

    An unknown consumer is answered with 404, and not with 401 as in `ConsumerTokens`.
    """

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Consumer]:
        names = request.parser_context["kwargs"]
        consumer = authenticate_consumer(
            request.headers, names["channel"], names["consumer"], exceptions.no_consumer
        )
        return AnonymousUser(), consumer


class ProducerTokens(BaseAuthentication):
    """Authentication of the producer in the headers: by the channel's token and its own token."""

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
    """Return the named consumer with its channel, if the headers have the tokens of both.

    Otherwise raise a refusal: that of `unknown` if the channel has no such consumer.
    """
    path = storable_path(channel_name, consumer_name)
    caller = protocol.find_callers(settings().DATABASE, [path]).get(path)
    return check_consumer(headers, caller, unknown)


def tokens_of(meta: Mapping[str, str]) -> dict[str, str]:
    """Return the tokens of channel and consumer in `request.META`, by the names of their headers.

    `request.headers` parses all headers, which takes longer than the rest of authentication.
    """
    return {name: meta[key] for name, key in _TOKEN_KEYS.items() if key in meta}


def storable_path(channel_name: str, consumer_name: str) -> ConsumerNames:
    """Return both names for a query, with an empty text in place of a name that has a NUL.

    PostgreSQL rejects texts with NUL. No row has an empty name, so the query finds none.
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
    """Return the consumer in `caller` if the headers have its token and that of its channel.

    Otherwise raise a refusal. `caller` is None if there is no such channel, and its consumer is
    None if the channel has no such consumer: `unknown` makes the refusal for that.
    """
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
    """Return the channel of this name if the headers have its token. Otherwise raise a refusal."""
    channel = find_row(Channel, name)
    if channel is None:
        raise access_refusals.unknown_channel()
    _check(channel, headers)
    return channel


def _check(channel: Channel, headers: Mapping[str, str]) -> None:
    if not has_token(channel, headers.get(CHANNEL_TOKEN, "")):
        raise access_refusals.wrong_channel_token()


def has_token(row: TokenHolder, token: str) -> bool:
    """Return True if `token` is that of the row, or if PULLJOBS['TOKENS_REQUIRED'] is False."""
    return not settings().TOKENS_REQUIRED or row.has_token(token)


def user_authenticators() -> list[BaseAuthentication]:
    """Return the authenticators in PULLJOBS['API_AUTHENTICATION'], for users of Django.

    DRF's TokenAuthentication is left out if the app with its tokens is not installed.
    """
    classes = map(import_string, settings().API_AUTHENTICATION)
    return [cls() for cls in classes if cls is not TokenAuthentication or has_authtoken()]


def has_authtoken() -> bool:
    """Return True if the app with DRF's tokens (`rest_framework.authtoken`) is installed."""
    return apps.is_installed("rest_framework.authtoken")


def user_name(request: Request) -> str:
    """Return the name of the request's user for the audit trail.

    It is "anonymous (HTTP)" without login, which PULLJOBS['API_ACCESS'] may permit.
    """
    return request.user.get_username() or NAMELESS


def caller(request: Request) -> Consumer:
    """Return the consumer that authentication has stored in the request."""
    return cast("Consumer", request.auth)


def publisher(request: Request) -> Publisher:
    """Return the producer and its channel, which authentication has stored in the request."""
    return cast("Publisher", request.auth)


def find_row(model: type[P], name: str) -> P | None:
    """Return the channel or producer with this name, or None if there is none."""
    rows = model._default_manager.using(settings().DATABASE)
    return None if NUL in name else rows.filter(name=name).first()


def find_consumer(channel: Channel, name: str) -> Consumer | None:
    """Return the channel's consumer with this name, or None if there is none or it is deleted."""
    if NUL in name:
        return None
    rows = Consumer.objects.using(settings().DATABASE).filter(deleted_at=None)
    consumer = rows.filter(channel=channel, name=name).first()
    if consumer is not None:
        consumer.channel = channel
    return consumer


def read_header(headers: Mapping[str, str], name: str) -> str:
    """Return a header as text: clients send UTF-8, which servers have decoded as Latin-1.

    A header that is not UTF-8 is returned as Latin-1, and an absent one as an empty text.
    """
    value = headers.get(name, "")
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value
