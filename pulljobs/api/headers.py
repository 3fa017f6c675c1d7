"""Headers, as text."""

from collections.abc import Mapping
from typing import Final

LEASE_TOKEN: Final = "X-Broker-Lease-Token"


def text(headers: Mapping[str, str], name: str) -> str:
    """Servers hand the bytes of a header over as Latin-1, clients mean UTF-8."""
    value = headers.get(name, "")
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value
