"""What somebody means by a name; ConfigurationError, with a name that is like it, where nothing."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final, NoReturn
from uuid import UUID

from django.db.models import QuerySet

from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError
from pulljobs.models import Channel, Consumer, Node, Producer

COMPARED: Final = 1_000
"""Names that a wrong one is compared with."""


def find_channel(name: str) -> Channel:
    rows = Channel.objects.using(settings().DATABASE)
    found = rows.filter(name=name).first() if _is_text(name) else None
    return found or _unknown("channel", name, rows.values_list("name", flat=True)[:COMPARED])


def find_producer(name: str) -> Producer:
    rows = Producer.objects.using(settings().DATABASE)
    found = rows.filter(name=name).first() if _is_text(name) else None
    return found or _unknown("producer", name, rows.values_list("name", flat=True)[:COMPARED])


def find_consumer(place: str) -> Consumer:
    """By CHANNEL/CONSUMER; one that was deleted, too."""
    of, _slash, name = place.partition("/")
    rows = _consumers()
    found = rows.filter(channel__name=of, name=name).first() if _is_text(place) else None
    known = rows.filter(deleted_at=None)[:COMPARED]
    return found or _unknown("consumer", place, [f"{one.channel.name}/{one.name}" for one in known])


def find_node(text: str) -> Node:
    """By its id, or by its host:pid the one that started last."""
    rows = Node.objects.using(settings().DATABASE).order_by("-started_at")
    try:
        found = rows.filter(pk=UUID(text)).first()
    except ValueError:
        found = rows.filter(name=text).first() if _is_text(text) else None
    return found or _unknown("node", text, rows.values_list("name", flat=True)[:COMPARED])


def find_consumers(places: Iterable[str]) -> list[Consumer]:
    """All of a channel, or one of CHANNEL/CONSUMER; those that are not deleted."""
    found: dict[int, Consumer] = {}
    for place in places:
        if "/" in place:
            consumer = find_consumer(place)
            found[consumer.pk] = consumer
        else:
            of = _consumers().filter(channel=find_channel(place), deleted_at=None).order_by("name")
            found |= {one.pk: one for one in of}
    return list(found.values())


def _consumers() -> QuerySet[Consumer]:
    return Consumer.objects.using(settings().DATABASE).select_related("channel")


def _is_text(name: str) -> bool:
    """Whether PostgreSQL can be asked for it."""
    return name.isprintable()


def _unknown(kind: str, name: str, known: Iterable[str]) -> NoReturn:
    alike: Sequence[str] = get_close_matches(name, list(known), 1)
    like = f": did you mean {alike[0]!r}?" if alike else "."
    raise ConfigurationError(f"There is no {kind} {name!r}{like}")
