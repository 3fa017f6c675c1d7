"""The roster: whom this worker serves. Consumers come, go and change while it runs."""

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from uuid import UUID

from django.db.models import Q

from pulljobs import handlers
from pulljobs.conf import Settings, settings
from pulljobs.errors import ConfigurationError
from pulljobs.handlers import Handler
from pulljobs.models import Consumer, Lease
from pulljobs.pulling import Puller
from pulljobs.worker.job_pool import Lane

if TYPE_CHECKING:
    from pulljobs.worker.push_delivery import Pushing

logger = logging.getLogger("pulljobs.worker")

READ_EVERY: Final = 2.0
"""Seconds after which a change of a consumer is noticed at the latest."""


@dataclass(slots=True, eq=False)
class Source:
    """A consumer that this worker serves."""

    puller: Puller
    handler: Handler
    lane: Lane
    look_at: float = 0.0
    """When to claim next, on the monotonic clock; before it only if something was heard."""

    @property
    def may_be_claimed_twice(self) -> bool:
        """Whether a claim that a crash of the server loses costs no more than a second delivery."""
        return self.puller.via == Lease.Via.PUSH and not self.waits_for_settles

    @property
    def waits_for_settles(self) -> bool:
        """Whether a settle of one of its jobs may let another one go."""
        consumer = self.puller.consumer
        return consumer.exclusive_keys or consumer.max_in_flight is not None


def can_push() -> bool:
    return find_spec("httpcore") is not None


def chosen(only: Collection[str], *, push: bool) -> list[Handler]:
    """The handlers that these names choose; ConfigurationError for a name that nobody bears."""
    if not push:
        return handlers.serving(only)
    known = list(handlers.registered())
    strange = set(only).difference(*(one.names for one in known))
    if strange and (strange := strange - _names_of_pushed()):
        handlers.serving(strange)
    return [one for one in known if not only or one.names & set(only)]


class Roster:
    """Used by the fetcher's thread only, but for the first time."""

    def __init__(
        self,
        limits: Settings,
        node_id: UUID,
        *,
        threads: Lane,
        tasks: Lane,
        pushing: "Pushing | None",
    ) -> None:
        self._limits, self._node_id = limits, node_id
        self._only = frozenset(limits.ONLY)
        self._threads, self._tasks, self._pushing = threads, tasks, pushing
        self._handlers = {
            one.path: handlers.traced(one) for one in chosen(self._only, push=limits.PUSH)
        }
        self._rows = [
            row.pk
            for row, handler in zip(handlers.sync_consumers(), handlers.registered(), strict=True)
            if handler.path in self._handlers
        ]
        self._sources: Sequence[Source] = ()
        self._warned: set[int] = set()
        self._read_at = float("-inf")
        if not limits.PUSH and all(map(_is_pushed, self._consumers())):
            raise ConfigurationError(
                "Every consumer that a handler is for is deleted or of type push."
            )

    def sources(self) -> Sequence[Source]:
        """Another list when it has changed."""
        if time.monotonic() - self._read_at > READ_EVERY:
            self._read()
            self._read_at = time.monotonic()
        return self._sources

    def _read(self) -> None:
        known = {source.puller.consumer.pk: source for source in self._sources}
        rows = self._consumers()
        found = [source for row in rows if (source := self._source(row, known)) is not None]
        if self._pushing is not None:
            self._pushing.keep({row.pk for row in rows if _is_pushed(row)})
        if found != self._sources:
            self._sources = found

    def _consumers(self) -> list[Consumer]:
        wanted = Q(pk__in=self._rows)
        if self._limits.PUSH:
            wanted |= Q(type=Consumer.Type.PUSH)
        rows = Consumer.objects.using(self._limits.DATABASE).filter(wanted)
        return [
            row for row in rows.select_related("channel").order_by("pk") if self._is_served(row)
        ]

    def _is_served(self, consumer: Consumer) -> bool:
        if consumer.deleted_at is None:
            names = {consumer.channel.name, f"{consumer.channel.name}/{consumer.name}"}
            return not self._only or bool(names & self._only)
        if not _is_pushed(consumer):
            self._warn(consumer, "is deleted: restore it, or drop its handler.")
        return False

    def _source(self, consumer: Consumer, known: Mapping[int, Source]) -> Source | None:
        source = known.get(consumer.pk)
        if source is None or _said(source.puller.consumer) != _said(consumer):
            return self._pushed(consumer) if _is_pushed(consumer) else self._handled(consumer)
        source.puller.consumer = consumer
        return source

    def _handled(self, consumer: Consumer) -> Source | None:
        handler = self._handlers.get((consumer.channel.name, consumer.name))
        if handler is None:
            return None
        puller = Puller(self._limits.DATABASE, consumer, node_id=self._node_id)
        return Source(puller, handler, self._tasks if handler.is_async else self._threads)

    def _pushed(self, consumer: Consumer) -> Source | None:
        if self._pushing is None:
            if self._limits.PUSH:
                self._warn(consumer, "is pushed to: python -m pip install 'pulljobs[push]'")
            return None
        lane = self._pushing.lane(consumer)
        puller = Puller(self._limits.DATABASE, consumer, via=Lease.Via.PUSH, node_id=self._node_id)
        return Source(puller, lane.handler, lane)

    def _warn(self, consumer: Consumer, what: str) -> None:
        if consumer.pk not in self._warned:
            self._warned.add(consumer.pk)
            logger.warning("Consumer %s %s", consumer.name, what)


def _is_pushed(consumer: Consumer) -> bool:
    return consumer.type == Consumer.Type.PUSH


def _said(consumer: Consumer) -> tuple[object, ...]:
    """What a source is made of."""
    return (
        consumer.type,
        consumer.channel.name,
        consumer.name,
        consumer.callback_url,
        consumer.token_sealed,
        consumer.signing_secrets_sealed,
    )


def _names_of_pushed() -> set[str]:
    every = Consumer.objects.using(settings().DATABASE)
    rows = every.filter(type=Consumer.Type.PUSH, deleted_at=None)
    pairs = rows.values_list("channel__name", "name")
    return {name for channel, consumer in pairs for name in (channel, f"{channel}/{consumer}")}
