"""Ownership of a stream: its row names the one owner, whose heartbeats show that it is alive."""

import os
import socket
import time
from datetime import timedelta
from typing import Final, NamedTuple
from uuid import UUID

from pulljobs.errors import ConfigurationError, StreamTaken
from pyspark_pulljobs.database_session import Session
from pyspark_pulljobs.stream_options import StreamOptions

BEAT: Final = timedelta(seconds=1)
"""Interval of heartbeats."""
PATIENCE: Final = timedelta(seconds=4)
"""Time without a heartbeat after which another process can become the owner."""
RETRY_SECONDS: Final = 0.5
"""Interval of the attempts to become the owner."""
MARGIN_SECONDS: Final = 2.0
"""Time to wait, in addition to `PATIENCE`, until the heartbeats of a dead owner are overdue."""


class Owned(NamedTuple):
    """Ownership of a stream by this process."""

    stream: str
    """Name of the stream."""
    stream_id: int
    consumer_id: int
    lease_duration: timedelta
    node_id: UUID
    """Id of this process as a node."""


def own(session: Session, options: StreamOptions, node_id: UUID) -> Owned:
    """Become the owner of the stream, or raise StreamTaken if its owner is alive.

    If there is an owner, the call waits for some seconds: if it is dead, its heartbeats are overdue
    then. Raise ConfigurationError if there is no such pull consumer, or the stream is of another.
    """
    consumer_id, default_duration = find_consumer(session, options)
    params = {
        "stream": options.stream,
        "consumer_id": consumer_id,
        "node_id": node_id,
        "name": f"{socket.gethostname()}:{os.getpid()}"[:255],
        "patience": PATIENCE,
    }
    give_up = time.monotonic() + PATIENCE.total_seconds() + MARGIN_SECONDS
    while not (rows := session.run("own_stream", params)):
        _refuse(session, options, consumer_id, is_late=time.monotonic() > give_up)
        time.sleep(RETRY_SECONDS)
    lease_duration = options.lease_duration or default_duration
    return Owned(options.stream, rows[0].stream_id, consumer_id, lease_duration, node_id)


def hold(session: Session, owned: Owned) -> None:
    """Raise StreamTaken if another process owns the stream now. The check prevents no takeover."""
    params = {"stream_id": owned.stream_id, "node_id": owned.node_id}
    if not session.run("hold_stream", params):
        raise StreamTaken(owned.stream)


def find_consumer(session: Session, options: StreamOptions) -> tuple[int, timedelta]:
    """Return the id of the stream's consumer and its lease duration.

    Raise ConfigurationError if there is no such pull consumer.
    """
    params = {"channel": options.channel, "consumer": options.consumer}
    rows = session.run("streamed", params)
    if not rows:
        raise ConfigurationError(
            f"There is no consumer {options.consumer!r} of channel {options.channel!r}: "
            "create it first."
        )
    [row] = rows
    if row.type != "pull":
        raise ConfigurationError(
            f"Consumer {options.consumer!r} of channel {options.channel!r} is a push consumer: set "
            "its type to pull first."
        )
    return row.consumer_id, row.lease_duration


def _refuse(session: Session, options: StreamOptions, consumer_id: int, *, is_late: bool) -> None:
    for row in session.run("stream_owner", {"stream": options.stream}):
        if row.consumer_id != consumer_id:
            raise ConfigurationError(
                f"Stream {options.stream!r} belongs to another consumer: use another name."
            )
        if is_late:
            raise StreamTaken(options.stream, row.name)
