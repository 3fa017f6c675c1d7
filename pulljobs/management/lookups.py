"""Search for rows by the names that operators type. Errors suggest a similar name."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final, NoReturn
from uuid import UUID

from django.db.models import QuerySet

from pulljobs.conf import settings
from pulljobs.engine.validation import encodable
from pulljobs.errors import ConfigurationError
from pulljobs.models import Channel, Consumer, Node, Producer

MAX_COMPARED: Final = 1_000
"""Maximum number of existing names that an unknown name is compared with."""


def find_channel(name: str) -> Channel:
    """Return the channel of this name, or raise `ConfigurationError`."""
    rows = Channel.objects.using(settings().DATABASE)
    channel = rows.filter(name=name).first() if _is_text(name) else None
    return channel or _raise_unknown(
        "channel", name, rows.values_list("name", flat=True)[:MAX_COMPARED]
    )


def find_producer(name: str) -> Producer:
    """Return the producer of this name, or raise `ConfigurationError`."""
    rows = Producer.objects.using(settings().DATABASE)
    producer = rows.filter(name=name).first() if _is_text(name) else None
    return producer or _raise_unknown(
        "producer", name, rows.values_list("name", flat=True)[:MAX_COMPARED]
    )


def find_consumer(path: str) -> Consumer:
    """Return the consumer with the path `CHANNEL/CONSUMER`, or raise `ConfigurationError`.

    A deleted consumer, whose row is kept for its history, is found as well.
    """
    channel_name, _slash, name = path.partition("/")
    rows = _consumers()
    consumer = (
        rows.filter(channel__name=channel_name, name=name).first() if _is_text(path) else None
    )
    known = rows.filter(deleted_at=None)[:MAX_COMPARED]
    return consumer or _raise_unknown("consumer", path, [other.path for other in known])


def find_node(text: str) -> Node:
    """Return the node with this id, or the one started last with this name (`host:pid`).

    Raise `ConfigurationError` if there is none.
    """
    rows = Node.objects.using(settings().DATABASE).order_by("-started_at")
    try:
        node = rows.filter(pk=UUID(text)).first()
    except ValueError:
        node = rows.filter(name=text).first() if _is_text(text) else None
    return node or _raise_unknown("node", text, rows.values_list("name", flat=True)[:MAX_COMPARED])


def find_consumers(paths: Iterable[str]) -> list[Consumer]:
    """Return the consumers that `CHANNEL` (all of it) or `CHANNEL/CONSUMER` name, each once.

    Deleted consumers of a channel are left out. Raise `ConfigurationError` for an unknown name.
    """
    consumers: dict[int, Consumer] = {}
    for path in paths:
        if "/" in path:
            consumer = find_consumer(path)
            consumers[consumer.pk] = consumer
        else:
            rows = _consumers().filter(channel=find_channel(path), deleted_at=None)
            consumers |= {consumer.pk: consumer for consumer in rows.order_by("name")}
    return list(consumers.values())


def _consumers() -> QuerySet[Consumer]:
    return Consumer.objects.using(settings().DATABASE).select_related("channel")


def _is_text(name: str) -> bool:
    """Return True if PostgreSQL can store the name: it has no NUL and no surrogates."""
    return encodable(name)


def _raise_unknown(kind: str, name: str, known: Iterable[str]) -> NoReturn:
    similar: Sequence[str] = get_close_matches(name, list(known), 1)
    suggestion = f": did you mean {similar[0]!r}?" if similar else "."
    raise ConfigurationError(f"There is no {kind} {name!r}{suggestion}")
