"""Options of libpq that end a connection whose server or network fell silent without closing it."""

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
"""Default options. `tcp_user_timeout` is in ms, other times in seconds.

A lost connection ends after 25 s if it is idle, and after 20 s with unacknowledged data: before the
end of a default lease of 30 s. The options have no effect on Unix sockets.
"""


def with_bounds(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return connection parameters, completed with the defaults of `CONNECTION_BOUNDS`."""
    return {**CONNECTION_BOUNDS, **params}
