"""Breaks of the HTTP client, which loads no Django.

outlive  hides from handlers that their lease is over
"""

from collections.abc import Callable
from typing import Any, Final

from pulljobs.client.lease_guard import LeaseGuard
from pulljobs.client.messages import Received


def install(names: str) -> None:
    """Break the HTTP client in this process in the named ways, which are separated by commas."""
    for name in names.split(","):
        if name in BREAKS:
            BREAKS[name]()


def _outlive() -> None:
    received: Any = Received
    guard: Any = LeaseGuard
    received.lost = False
    guard._cut_off = lambda guard: False  # Also after an answer that the lease is lost.


BREAKS: Final[dict[str, Callable[[], None]]] = {"outlive": _outlive}
