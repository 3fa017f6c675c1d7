from typing import Any

from rest_framework.request import Request

from pulljobs import registering
from pulljobs.api import times
from pulljobs.api.broker import links
from pulljobs.api.permissions import may
from pulljobs.models import Channel, Consumer, Producer
from pulljobs.models.registry import TokenHolder

Shown = dict[str, Any]


def producer(request: Request, party: Producer, token: str | None) -> Shown:
    return _party(party, token)


def channel(request: Request, party: Channel, token: str | None) -> Shown:
    return {
        **_party(party, token),
        "ConsumersURL": links.to_channel(request, "consumers", party),
        "MessagesURL": links.to_channel(request, "messages", party),
        "BroadcastURL": links.to_channel(request, "broadcast", party),
        "MessagesStatusURL": links.to_channel(request, "messages-status", party),
    }


def consumer(request: Request, party: Consumer, token: str | None) -> Shown:
    return {
        **_party(party, token),
        "CallbackURL": callback_url(request, party),
        "DeadLetterQueueURL": links.to_consumer(request, "dlq", party),
        "Type": party.type,
    }


def callback_url(request: Request, party: Consumer) -> str:
    """Whole for those who may change it."""
    url = party.callback_url
    return url if may(request, "pulljobs.change_consumer") else registering.masked(url)


def name_of(party: TokenHolder) -> str:
    """What the protocol calls Name: the title, or the id where there is none."""
    return party.title or party.name


def _party(party: TokenHolder, token: str | None) -> Shown:
    """Without Token where the caller may not see it, or no copy of it can be opened."""
    return {
        "ID": party.name,
        "Name": name_of(party),
        **({} if token is None else {"Token": token}),
        "ChangedAt": times.rfc_3339(party.changed_at),
    }
