"""Options of libpq that end connections whose other side fell silent without closing them."""

from collections.abc import Mapping
from typing import Any, Final

CONNECTION_BOUNDS: Final[Mapping[str, int]] = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""Defaults, below the default lease of 30 s. `tcp_user_timeout` is in ms, other times in seconds.

An idle connection that is lost ends after 25 s, and one with unacknowledged data after 20 s. They
have no effect on Unix sockets.
"""


def with_bounds(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a connection, with the bounds that they do not set themselves."""
    return {**CONNECTION_BOUNDS, **params}
