"""Who calls, by tokens: looked at in the protocol's order of checks."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar, cast

from django.apps import apps
from django.contrib.auth.models import AnonymousUser
from django.utils.module_loading import import_string
from rest_framework.authentication import BaseAuthentication, TokenAuthentication
from rest_framework.request import Request

from pulljobs.api import exceptions
from pulljobs.api.headers import text
from pulljobs.conf import settings
from pulljobs.models import Channel, Consumer, Producer
from pulljobs.models.registry import TokenHolder
from pulljobs.storage import protocol

CHANNEL_TOKEN: Final = "X-Broker-Channel-Token"
CONSUMER_TOKEN: Final = "X-Broker-Consumer-Token"
PRODUCER: Final = "X-Broker-Producer-ID"
PRODUCER_TOKEN: Final = "X-Broker-Producer-Token"
NUL: Final = "\x00"
P = TypeVar("P", Channel, Producer)


class Publisher(NamedTuple):
    channel: Channel
    producer: Producer


class ConsumerTokens(BaseAuthentication):
    """The caller is the consumer that the URL names, once both tokens are right."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Consumer]:
        names = request.parser_context["kwargs"]
        return AnonymousUser(), known(request.headers, names["channel"], names["consumer"])


class DeleterTokens(BaseAuthentication):
    """To delete jobs: the same tokens, but a consumer that is not there is 404."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Consumer]:
        names = request.parser_context["kwargs"]
        found = known(request.headers, names["channel"], names["consumer"], exceptions.no_consumer)
        return AnonymousUser(), found


class ProducerTokens(BaseAuthentication):
    """The caller is a producer, who shows the channel's token and its own."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Publisher]:
        channel = known_channel(request.headers, request.parser_context["kwargs"]["channel"])
        producer = find(Producer, text(request.headers, PRODUCER))
        if producer is None:
            raise exceptions.unknown_producer()
        if not shows(producer, request.headers.get(PRODUCER_TOKEN, "")):
            raise exceptions.wrong_producer_token()
        return AnonymousUser(), Publisher(channel, producer)


def known(
    headers: Mapping[str, str],
    channel_name: str,
    consumer_name: str,
    unknown: Callable[[], Exception] = exceptions.unknown_consumer,
) -> Consumer:
    """The consumer, its channel beside it, once both tokens are right; for views of any kind."""
    # A name that PostgreSQL can't hold is nobody's, like the empty one.
    names = ("" if NUL in name else name for name in (channel_name, consumer_name))
    found = protocol.parties(settings().DATABASE, *names)
    if found is None:
        raise exceptions.unknown_channel()
    channel, consumer = found
    _check(channel, headers)
    if consumer is None:
        raise unknown()
    if not shows(consumer, headers.get(CONSUMER_TOKEN, "")):
        raise exceptions.wrong_consumer_token()
    return consumer


def known_channel(headers: Mapping[str, str], name: str) -> Channel:
    """The channel, once its token is right."""
    channel = find(Channel, name)
    if channel is None:
        raise exceptions.unknown_channel()
    _check(channel, headers)
    return channel


def _check(channel: Channel, headers: Mapping[str, str]) -> None:
    if not shows(channel, headers.get(CHANNEL_TOKEN, "")):
        raise exceptions.wrong_channel_token()


def shows(party: TokenHolder, token: str) -> bool:
    """Whether it is the party's token, where tokens are asked for."""
    return not settings().TOKENS_REQUIRED or party.has_token(token)


def users() -> list[BaseAuthentication]:
    """By what users of Django are known: as set, without tokens where their app is missing."""
    classes = map(import_string, settings().API_AUTHENTICATION)
    return [one() for one in classes if one is not TokenAuthentication or has_authtoken()]


def has_authtoken() -> bool:
    return apps.is_installed("rest_framework.authtoken")


def user_name(request: Request) -> str:
    """For the audit trail; empty where nobody had to say who calls: see PULLJOBS['API_ACCESS']."""
    return request.user.get_username()


def caller(request: Request) -> Consumer:
    """Who the tokens belong to."""
    return cast("Consumer", request.auth)


def publisher(request: Request) -> Publisher:
    """Who the tokens of a producer belong to, and where it publishes."""
    return cast("Publisher", request.auth)


def find(model: type[P], name: str) -> P | None:
    """By its exact name; what PostgreSQL can't hold is nobody's."""
    rows = model._default_manager.using(settings().DATABASE)
    return None if NUL in name else rows.filter(name=name).first()


def find_consumer(channel: Channel, name: str) -> Consumer | None:
    """One that was not deleted."""
    if NUL in name:
        return None
    rows = Consumer.objects.using(settings().DATABASE).filter(deleted_at=None)
    found = rows.filter(channel=channel, name=name).first()
    if found is not None:
        found.channel = channel
    return found
