"""Counts of the messages that were published to each consumer of their channel."""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from pulljobs.lake.rollups.counts import Key, Rows, Sketches
from pulljobs.lake.rollups.hours import HOUR, hour_at


class Subscription(NamedTuple):
    """Time from a consumer's creation to its deletion, in which it gets messages of its channel."""

    consumer_id: int
    channel_id: int
    since: datetime
    until: datetime

    def covers(self, hour: datetime) -> bool:
        return self.since <= hour and hour + HOUR <= self.until

    def is_during(self, hour: datetime) -> bool:
        return self.since < hour + HOUR and hour < self.until

    def is_at(self, time: datetime) -> bool:
        return self.since <= time < self.until


class Addressed(NamedTuple):
    """Number of messages that a bulk publish published to only one consumer of a channel."""

    consumer_id: int
    channel_id: int
    at: datetime
    messages: int


class Audience(NamedTuple):
    """Lifetimes of consumers, and the bulk publishes that only one consumer of a channel got."""

    subscriptions: Sequence[Subscription]
    addressed: Sequence[Addressed]


class ChannelHour(NamedTuple):
    """Messages of a channel in an hour, with the sketch of their keys."""

    channel_id: int
    hour: int
    """Hours since 1970."""
    messages: int
    sketches: Sketches


class Edge(NamedTuple):
    """Hour in which a consumer was created or deleted, so that it got only some messages."""

    consumer_id: int
    channel_id: int
    hour: int
    """Hours since 1970."""
    since: datetime
    """Creation of the consumer."""
    until: datetime
    """Deletion of the consumer."""

    @property
    def key(self) -> Key:
        return Key(self.consumer_id, hour_at(self.hour))


CountEdges = Callable[[Collection[Edge]], Iterable[tuple[Key, int]]]
"""Function that counts the messages of edges by their times."""


def count(
    channels: Iterable[ChannelHour], audience: Audience, rows: Rows, count_edges: CountEdges
) -> None:
    """Count for each consumer the messages that it got from its channel, into `rows`.

    `count_edges` counts those of hours in which a consumer was created or deleted.
    """
    edges: set[Edge] = set()
    for channel in channels:
        hour = hour_at(channel.hour)
        for subscription in audience.subscriptions:
            if subscription.channel_id != channel.channel_id or not subscription.is_during(hour):
                continue
            counts = rows[Key(subscription.consumer_id, hour)]
            counts.sketches.take_keys(channel.sketches)
            if subscription.covers(hour):
                counts.published = channel.messages
            else:
                edges.add(Edge(*subscription[:2], channel.hour, *subscription[2:]))
    for key, messages in count_edges(edges) if edges else ():
        rows[key].published = messages
    _leave_out(audience, rows)


def _leave_out(audience: Audience, rows: Rows) -> None:
    """Subtract messages that went to a single consumer from the counts of the others."""
    for addressed in audience.addressed:
        hour = addressed.at.replace(minute=0, second=0, microsecond=0)
        for subscription in audience.subscriptions:
            key = Key(subscription.consumer_id, hour)
            if (
                subscription.channel_id == addressed.channel_id
                and subscription.consumer_id != addressed.consumer_id
                and subscription.is_at(addressed.at)
                and key in rows
            ):
                rows[key].published = max(0, rows[key].published - addressed.messages)
