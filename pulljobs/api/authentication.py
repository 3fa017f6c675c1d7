"""Who calls: the channel's and the consumer's token, in the protocol's order of checks."""

from typing import Final, cast

from django.contrib.auth.models import AnonymousUser
from django.db.models import Q
from django.db.models.functions import Now
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from pulljobs.api import exceptions
from pulljobs.conf import settings
from pulljobs.models import Channel, Consumer

CHANNEL_TOKEN: Final = "X-Broker-Channel-Token"
CONSUMER_TOKEN: Final = "X-Broker-Consumer-Token"
NUL: Final = "\x00"


class ConsumerTokens(BaseAuthentication):
    """The caller is the consumer that the URL names, once both tokens are right."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Consumer]:
        names = request.parser_context["kwargs"]
        channel = _channel(names["channel"])
        if not channel.has_token(request.headers.get(CHANNEL_TOKEN, "")):
            raise exceptions.wrong_channel_token()
        consumer = _consumer(channel, names["consumer"])
        if not consumer.has_token(request.headers.get(CONSUMER_TOKEN, "")):
            raise exceptions.wrong_consumer_token()
        return AnonymousUser(), consumer


def caller(request: Request) -> Consumer:
    """Who the tokens belong to."""
    return cast("Consumer", request.auth)


def is_paused(consumer: Consumer) -> bool:
    """By the database's clock, which also decides about claims."""
    pause = Q(paused_until__gt=Now()) | Q(channel__paused_until__gt=Now())
    return Consumer.objects.using(settings().DATABASE).filter(pause, pk=consumer.pk).exists()


def _channel(name: str) -> Channel:
    channels = Channel.objects.using(settings().DATABASE)
    channel = None if NUL in name else channels.filter(name=name).first()
    if channel is None:
        raise exceptions.unknown_channel()
    return channel


def _consumer(channel: Channel, name: str) -> Consumer:
    consumers = Consumer.objects.using(settings().DATABASE).filter(deleted_at=None)
    consumer = None if NUL in name else consumers.filter(channel=channel, name=name).first()
    if consumer is None:
        raise exceptions.unknown_consumer()
    return consumer
