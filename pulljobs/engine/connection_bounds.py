"""Ends of connections: options of libpq that end a silent one, and a look at an idle one."""

import select
from collections.abc import Mapping
from typing import Any, Final

import psycopg

CONNECTION_BOUNDS: Final[Mapping[str, int]] = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""Default options. `tcp_user_timeout` is in ms, other times in seconds.

A lost connection ends after 25 s if it is idle, and after 20 s with unacknowledged data: before the
end of a default lease of 30 s. The options have no effect on Unix sockets.
"""


def with_bounds(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return connection parameters, completed with the defaults of `CONNECTION_BOUNDS`."""
    return {**CONNECTION_BOUNDS, **params}


def may_have_ended(raw: "psycopg.Connection[Any]") -> bool:
    """Return True if an idle connection is closed, or has received something: most likely its end.

    No query is sent: a query shows whether the connection still works.
    """
    if raw.closed:
        return True
    received = select.poll()
    received.register(raw.pgconn.socket, select.POLLIN)
    return bool(received.poll(0))
