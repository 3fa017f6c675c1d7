"""Ownership of a stream: a row names the only owner, and heartbeats show that it is alive."""

import os
import socket
import time
from datetime import timedelta
from typing import Final, NamedTuple
from uuid import UUID

from pulljobs.errors import ConfigurationError, StreamTaken
from pyspark_pulljobs.session import Session
from pyspark_pulljobs.stream_options import Wanted

BEAT: Final = timedelta(seconds=1)
PATIENCE: Final = timedelta(seconds=4)
"""Time without a heartbeat after which a stream is free."""
LOOK_SECONDS: Final = 0.5
MARGIN_SECONDS: Final = 2.0


class Owned(NamedTuple):
    """Stream that this process owns."""

    stream_id: int
    consumer_id: int
    lease_duration: timedelta
    node_id: UUID


def own(session: Session, wanted: Wanted, node_id: UUID) -> Owned:
    """Become the owner, waiting out a dead owner; raise StreamTaken if the owner is alive."""
    consumer_id, lease = _consumer(session, wanted)
    params = {
        "stream": wanted.stream,
        "consumer_id": consumer_id,
        "node_id": node_id,
        "name": f"{socket.gethostname()}:{os.getpid()}"[:255],
        "patience": PATIENCE,
    }
    give_up = time.monotonic() + PATIENCE.total_seconds() + MARGIN_SECONDS
    while not (rows := session.run("own_stream", params)):
        _refuse(session, wanted, consumer_id, is_late=time.monotonic() > give_up)
        time.sleep(LOOK_SECONDS)
    return Owned(rows[0].stream_id, consumer_id, wanted.lease_duration or lease, node_id)


def hold(session: Session, owned: Owned, stream: str) -> None:
    """Lock the ownership in the current transaction; raise StreamTaken if it was taken over."""
    params = {"stream_id": owned.stream_id, "node_id": owned.node_id}
    if not session.run("hold_stream", params):
        raise StreamTaken(stream)


def _consumer(session: Session, wanted: Wanted) -> tuple[int, timedelta]:
    params = {"channel": wanted.channel, "consumer": wanted.consumer}
    rows = session.run("streamed", params)
    if not rows:
        raise ConfigurationError(
            f"There is no consumer {wanted.consumer!r} of channel {wanted.channel!r}: "
            "create it first."
        )
    [row] = rows
    if row.type != "pull":
        raise ConfigurationError(
            f"Consumer {wanted.consumer!r} of channel {wanted.channel!r} is a push consumer: set "
            "its type to pull first."
        )
    return row.consumer_id, row.lease_duration


def _refuse(session: Session, wanted: Wanted, consumer_id: int, *, is_late: bool) -> None:
    for row in session.run("stream_owner", {"stream": wanted.stream}):
        if row.consumer_id != consumer_id:
            raise ConfigurationError(
                f"Stream {wanted.stream!r} belongs to another consumer: use another name."
            )
        if is_late:
            raise StreamTaken(wanted.stream, row.name)
