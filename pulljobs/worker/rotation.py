"""Rotation: the order in which the fetcher claims for the subscriptions of its process."""

import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final

from pulljobs.handlers import ClaimedJob
from pulljobs.worker.job_pool import JobPool
from pulljobs.worker.subscriptions import ConsumerSubscription

LONGEST_PASS: Final = 0.5
SEARCH_EVERY: Final = 1.0
"""Seconds between passes that check all subscriptions. The others check those due soon."""
_names_of: Final = attrgetter("handler.names")
URGENT_SHARE: Final = 3
"""One of this many claims is for the longest waiting subscription, the others for new work."""


class FetchRotation:
    """Order of claims: two of three for subscriptions with new work, one for the longest waiting.

    Any thread may call the methods that note something. The fetcher's thread calls the others.
    """

    def __init__(self) -> None:
        self.subscriptions: Sequence[ConsumerSubscription] = ()
        self._known: Mapping[object, ConsumerSubscription] = {}
        """Subscriptions by consumer id, by (channel, consumer), by pools with `reports_room`."""
        self._with_work: deque[object] = deque()
        self._with_room: deque[object] = deque()
        self._urgent: deque[ConsumerSubscription] = deque()
        """Subscriptions with new work."""
        self._soon: set[ConsumerSubscription] = set()
        """Subscriptions that may be due before the next search, as `soon` returns them."""
        self.search_at = 0.0
        """Time of the monotonic clock at which `soon` searches all subscriptions again."""
        self._turns = 0

    def serve(self, subscriptions: Sequence[ConsumerSubscription]) -> None:
        """Serve these subscriptions from now on, and no others."""
        known: dict[object, ConsumerSubscription] = {}
        for subscription in subscriptions:
            known[subscription.puller.consumer.pk] = subscription
            known[subscription.handler.names] = subscription
            if subscription.pool.reports_room:
                known[subscription.pool] = subscription
        self._known, self.subscriptions = known, subscriptions
        self.search_at = 0.0

    def note_work(self, consumers: Collection[object] | None = None) -> bool:
        """Note that all consumers, or those given by id or names, may have new jobs.

        Return True if one of them is served here: the caller then wakes the fetcher. Any thread may
        call this.
        """
        if consumers is None:
            consumers = [subscription.handler.names for subscription in self.subscriptions]
        known = [consumer for consumer in consumers if consumer in self._known]
        self._with_work.extend(known)
        return bool(known)

    def note_room(self, pool: JobPool) -> None:
        """Note that a pool may take jobs again. The caller wakes the fetcher."""
        self._with_room.append(pool)

    def note_flushed(self, settled: Collection[ClaimedJob], back: Collection[ClaimedJob]) -> None:
        """Note the consumers with new work after a flush.

        These are the consumers of jobs that are `back` in the queue, and those of settled jobs that
        may have freed a key or a place under a limit.
        """
        with_work = {job.handler.names for job in back}
        served = map(self._known.get, set(map(_names_of, settled)))
        with_work |= {each.handler.names for each in served if each and each.waits_for_settles}
        self.note_work(with_work)

    def due(self) -> Iterator[ConsumerSubscription]:
        """Yield the subscriptions that are due, until `LONGEST_PASS` seconds have passed.

        Each of them stays due until the caller calls `plan_look` for it.
        """
        now = time.monotonic()
        self._take_notes(now)
        waiting = deque(sorted(self.find_due(now), key=_sort_key))
        while time.monotonic() < now + LONGEST_PASS and (subscription := self._next(waiting)):
            yield subscription
            waiting.extend(self._take_notes(time.monotonic()))

    def soon(self, now: float) -> Collection[ConsumerSubscription]:
        """Return the subscriptions that may be due within a second.

        Once a second, all subscriptions are searched for them. `plan_look` adds further ones.
        """
        if now >= self.search_at:
            self.search_at = now + SEARCH_EVERY
            self._soon = {each for each in self.subscriptions if each.look_at < self.search_at}
        return self._soon

    def find_due(self, now: float) -> list[ConsumerSubscription]:
        """Return the subscriptions to claim for at the monotonic time `now`, in no order."""
        return [subscription for subscription in self.soon(now) if subscription.look_at <= now]

    def find_polls(self) -> list[ConsumerSubscription]:
        """Return the subscriptions due before `search_at`, which is at most a second away."""
        return [each for each in self._soon if each.look_at < self.search_at]

    def plan_look(self, subscription: ConsumerSubscription, at: float) -> None:
        """Set the time of the monotonic clock at which to claim for a subscription next."""
        subscription.look_at = at
        if at < self.search_at:
            self._soon.add(subscription)

    def look_at_all(self) -> None:
        """Make all subscriptions due, so that the fetcher claims for each."""
        for subscription in self.subscriptions:
            subscription.look_at = 0.0
        self.search_at = 0.0

    def _next(self, waiting: deque[ConsumerSubscription]) -> ConsumerSubscription | None:
        """Take the next due subscription from those with new work or, each third time, `waiting`.

        If the first choice has none, take it from the other. Return None if both have none.
        """
        self._turns += 1
        now = time.monotonic()
        is_urgent = self._turns % URGENT_SHARE
        for queue in (self._urgent, waiting) if is_urgent else (waiting, self._urgent):
            while queue:
                subscription = queue.popleft()
                if subscription.look_at <= now:  # Else it was in both queues and is served.
                    return subscription
        return None

    def _take_notes(self, now: float) -> list[ConsumerSubscription]:
        """Hasten the next claims for the subscriptions whose new work or free slots were noted.

        Add those with new work to the urgent ones. Return those whose pools have free slots.
        """
        with_work, with_room = self._take(self._with_work), self._take(self._with_room)
        for subscription in with_work:
            self._hasten(subscription, max(now, subscription.quiet_until))
        for subscription in with_room:  # Free slots are of no use before the next token.
            self._hasten(subscription, max(now, subscription.limited_until))
        self._urgent.extend(with_work)
        return with_room

    def _hasten(self, subscription: ConsumerSubscription, at: float) -> None:
        self.plan_look(subscription, min(subscription.look_at, at))

    def _take(self, notes: deque[object]) -> list[ConsumerSubscription]:
        keys = {notes.popleft() for _ in range(len(notes))}
        return [self._known[key] for key in keys if key in self._known]


def _sort_key(subscription: ConsumerSubscription) -> tuple[bool, float]:
    """Return a sort key: claims with asynchronous commit last, then the longest due first."""
    return subscription.may_be_claimed_twice, subscription.look_at
