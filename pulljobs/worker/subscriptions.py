"""Subscriptions: the consumers that a worker serves. Changes of them are read every 2 seconds."""

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from uuid import UUID

from django.db.models import Q

from pulljobs import handlers
from pulljobs.conf import LEAST_LEASE, Settings, settings
from pulljobs.engine.encodings import integer_array
from pulljobs.engine.run_times import SECONDS_AHEAD, SECONDS_AHEAD_OF_TURNS, RunTime
from pulljobs.errors import ConfigurationError
from pulljobs.handlers import Handler
from pulljobs.models import Consumer, Lease
from pulljobs.pulling import Puller
from pulljobs.storage import statements
from pulljobs.worker.job_pool import JobPool

if TYPE_CHECKING:
    from pulljobs.worker.push_delivery import PushDelivery

logger = logging.getLogger("pulljobs.worker")

READ_EVERY: Final = 2.0
"""Least seconds between two looks for changes of consumers."""
MANY: Final = 1_000
"""Number of consumers above which a separate thread looks for changes: each takes 2 µs."""
SHORT_LEASE: Final = (
    "has a lease of {:g} s, which ends before it can be renewed: this worker claims with "
    f"{LEAST_LEASE.total_seconds():g} s. Set a longer lease_duration."
)


@dataclass(slots=True, eq=False)
class ConsumerSubscription:
    """Consumer that this worker serves, with the handler and the pool that run its jobs."""

    puller: Puller
    handler: Handler
    pool: JobPool
    run_time: RunTime = field(default_factory=RunTime)
    payload_bytes: float = 0.0
    """Mean size of the payloads of the last claim."""
    look_at: float = 0.0
    """Time of the monotonic clock at which to claim next, unless a notification comes first."""
    limited_until: float = 0.0
    """Time until which a rate or a throttle allows no job, by the last claim."""
    quiet_until: float = 0.0
    """Time until which notifications wait, because a rate or a throttle allows no job."""

    @property
    def lease_duration(self) -> timedelta:
        """Lease duration of claims: the consumer's, or `LEAST_LEASE` if that is longer."""
        return max(self.puller.consumer.lease_duration, LEAST_LEASE)

    @property
    def may_be_claimed_twice(self) -> bool:
        """True if claims commit asynchronously: a crash of the server may redeliver their jobs."""
        consumer = self.puller.consumer
        has_rate = consumer.rate_per_second is not None or consumer.rate_per_key
        if has_rate or consumer.limit_group_id is not None:
            return False  # The tokens of a claim that is lost would be spent again.
        is_safe = self.puller.via == Lease.Via.PUSH or self.handler.is_fenced
        return is_safe and not self.waits_for_settles

    def room(self) -> int:
        """Return how many more jobs its pool takes now, zero or less for none."""
        is_fair = self.puller.consumer.fair_by_key
        self.run_time.ahead = SECONDS_AHEAD_OF_TURNS if is_fair else SECONDS_AHEAD
        return self.pool.room(self.run_time)

    @property
    def waits_for_settles(self) -> bool:
        """True if the settlement of one job may make another one claimable."""
        consumer = self.puller.consumer
        bounds = (consumer.max_in_flight, consumer.limit_group_id, consumer.max_in_flight_per_key)
        return consumer.exclusive_keys or any(bound is not None for bound in bounds)


def can_deliver() -> bool:
    """Return True if the packages for push delivery are installed."""
    return find_spec("httpcore") is not None


def chosen_handlers(
    only: Collection[str] = (), exclude: Collection[str] = (), *, push: bool
) -> list[Handler]:
    """Return the handlers that `only` names, or all if it is empty, except those of `exclude`.

    Raise ConfigurationError for a name without a handler, without any handler, and if `exclude`
    has all that `only` names. With `push`, if its packages are installed, names of push consumers
    are valid as well, and there may be no handler at all.
    """
    if only and all({name, name.partition("/")[0]}.intersection(exclude) for name in only):
        named = ", ".join(sorted(only))
        raise ConfigurationError(f"EXCLUDE leaves nothing of ONLY: {named}. Exclude less.")
    push = push and can_deliver()
    known = list(handlers.registered())
    unknown = {*only, *exclude}.difference(*(handler.selectors for handler in known))
    if unknown and push:
        unknown -= _names_of_push_consumers()
    if unknown or not (known or push):
        raise ConfigurationError(_describe_missing(unknown, known))
    return [handler for handler in known if is_chosen(handler.selectors, only, exclude)]


def _describe_missing(unknown: Collection[str], known: Collection[Handler]) -> str:
    if not known:
        return (
            "There is no handler: register one with @pulljobs.handlers.handler in a "
            "pull_handlers.py of an installed app. Push needs no handler, but pulljobs[push]."
        )
    served = ", ".join(sorted(handler.path for handler in known))
    return f"No handler serves {', '.join(sorted(unknown))}: there are handlers for {served}."


def is_chosen(names: set[str], only: Collection[str], exclude: Collection[str]) -> bool:
    """Return True if `only` and `exclude` let a worker serve a consumer that has these names.

    Its names are its channel and its path, `channel/consumer`.
    """
    return (not only or not names.isdisjoint(only)) and names.isdisjoint(exclude)


class Subscriptions:
    """Subscriptions of one process, which the fetcher's thread reads again after a change."""

    def __init__(
        self,
        limits: Settings,
        node_id: UUID,
        *,
        threads: JobPool,
        tasks: JobPool,
        push_delivery: "PushDelivery | None",
    ) -> None:
        """Create consumers that handlers lack. `threads` runs sync handlers, `tasks` async ones.

        Raise ConfigurationError if ONLY or EXCLUDE has an unknown name, or none is left to serve.
        """
        self._limits, self._node_id = limits, node_id
        self._only, self._exclude = frozenset(limits.ONLY), frozenset(limits.EXCLUDE)
        self._threads, self._tasks, self._push_delivery = threads, tasks, push_delivery
        self._handlers = {
            handler.names: handlers.traced(handler)
            for handler in chosen_handlers(self._only, self._exclude, push=limits.PUSH)
        }
        self._consumer_ids = [
            consumer.pk
            for consumer, handler in zip(
                handlers.sync_consumers(), handlers.registered(), strict=True
            )
            if handler.names in self._handlers
        ]
        self._current: Sequence[ConsumerSubscription] = ()
        self._warned: set[int] = set()
        self._looked_at = float("-inf")
        self._is_watched = False
        """True if another thread looks for changes."""
        self._version: str | None = ""
        self._seen_version: str | None = ""
        """Version of the consumers, as last read. A change of one of them alters it."""
        if not limits.PUSH and all(map(_is_push, self._read_consumers())):
            raise ConfigurationError(
                "Every consumer that has a handler is deleted or of type push: restore one, or "
                "leave out --no-push."
            )

    def current(self) -> Sequence[ConsumerSubscription]:
        """Return the subscriptions, in the order of their consumers' ids.

        The list is another object whenever it has changed.
        """
        if not self._is_watched and time.monotonic() - self._looked_at > READ_EVERY:
            self.look_for_changes()
        # Before the rows: what changes in between is read the next time.
        version = self._seen_version
        if version != self._version:
            self._read()
            self._version = version
        return self._current

    def watch(self) -> "SubscriptionWatch | None":
        """Return a loop that looks for changes from now on, or None if there are few consumers."""
        self._is_watched = len(self._current) > MANY
        return SubscriptionWatch(self) if self._is_watched else None

    def look_for_changes(self) -> None:
        """Read the version of the consumers. If it is new, the next `current` reads their rows.

        Any thread may call this.
        """
        self._seen_version = self._read_version()
        self._looked_at = time.monotonic()

    def _read(self) -> None:
        known = {subscription.puller.consumer.pk: subscription for subscription in self._current}
        consumers = self._read_consumers()
        current = [
            subscription
            for consumer in consumers
            if (subscription := self._subscribe(consumer, known)) is not None
        ]
        if self._push_delivery is not None:
            self._push_delivery.keep({consumer.pk for consumer in consumers if _is_push(consumer)})
        if current != self._current:
            self._current = current

    def _read_version(self) -> str | None:
        consumer_ids = integer_array(self._consumer_ids)
        params = {"consumer_ids": consumer_ids, "with_push": self._limits.PUSH}
        [row] = statements.run(self._limits.DATABASE, "consumers_version", params)
        version: str | None = row.version
        return version

    def _read_consumers(self) -> list[Consumer]:
        wanted = Q(pk__in=self._consumer_ids)
        if self._limits.PUSH:
            wanted |= Q(type=Consumer.Type.PUSH)
        rows = Consumer.objects.using(self._limits.DATABASE).filter(wanted)
        return [
            row for row in rows.select_related("channel").order_by("pk") if self._is_served(row)
        ]

    def _is_served(self, consumer: Consumer) -> bool:
        if consumer.deleted_at is None:
            names = {consumer.channel.name, consumer.path}
            return is_chosen(names, self._only, self._exclude)
        if not _is_push(consumer):
            self._warn(consumer, "is deleted: restore it, or remove its handler.")
        return False

    def _subscribe(
        self, consumer: Consumer, known: Mapping[int, ConsumerSubscription]
    ) -> ConsumerSubscription | None:
        """Return the known subscription if it can stay, else a new one.

        Return None if this process has no handler for the consumer, or does not deliver pushes.
        """
        if consumer.lease_duration < LEAST_LEASE:
            self._warn(consumer, SHORT_LEASE.format(consumer.lease_duration.total_seconds()))
        subscription = known.get(consumer.pk)
        if subscription is None or _identity(subscription.puller.consumer) != _identity(consumer):
            return self._push(consumer) if _is_push(consumer) else self._pull(consumer)
        subscription.puller.consumer = consumer
        return subscription

    def _pull(self, consumer: Consumer) -> ConsumerSubscription | None:
        handler = self._handlers.get((consumer.channel.name, consumer.name))
        if handler is None:
            return None
        puller = Puller(self._limits.DATABASE, consumer, node_id=self._node_id)
        return ConsumerSubscription(
            puller, handler, self._tasks if handler.is_async else self._threads
        )

    def _push(self, consumer: Consumer) -> ConsumerSubscription | None:
        if self._push_delivery is None:
            if self._limits.PUSH:
                self._warn(
                    consumer,
                    "is of type push, which needs more packages: "
                    "python -m pip install 'pulljobs[push]'",
                )
            return None
        pool = self._push_delivery.pool(consumer)
        puller = Puller(self._limits.DATABASE, consumer, via=Lease.Via.PUSH, node_id=self._node_id)
        return ConsumerSubscription(puller, pool.handler, pool)

    def _warn(self, consumer: Consumer, problem: str) -> None:
        if consumer.pk not in self._warned:
            self._warned.add(consumer.pk)
            logger.warning("Consumer %s %s", consumer.name, problem)


class SubscriptionWatch:
    """Loop that looks for changes in the fetcher's place, if the worker serves many consumers."""

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions

    def tick(self) -> float:
        self._subscriptions.look_for_changes()
        return READ_EVERY


def _is_push(consumer: Consumer) -> bool:
    return consumer.type == Consumer.Type.PUSH


def _identity(consumer: Consumer) -> tuple[object, ...]:
    """Return those values of a consumer of which a change needs a new subscription."""
    return (
        consumer.type,
        consumer.channel.name,
        consumer.name,
        consumer.callback_url,
        consumer.token_sealed,
        consumer.signing_secrets_sealed,
    )


def _names_of_push_consumers() -> set[str]:
    consumers = Consumer.objects.using(settings().DATABASE)
    rows = consumers.filter(type=Consumer.Type.PUSH, deleted_at=None)
    pairs = rows.values_list("channel__name", "name")
    return {name for channel, consumer in pairs for name in (channel, f"{channel}/{consumer}")}
