"""URLs of others: what is one at all."""

from typing import Final
from urllib.parse import urlsplit

LONGEST_URL: Final = 2_000


def is_absolute(url: str) -> bool:
    """Over http or https, with a host whose name can be looked up, and a port if any is named."""
    try:
        parts = urlsplit(url)
        has_host = bool((parts.hostname or "").encode("idna"))
        known = parts.scheme in ("http", "https") and has_host and parts.port != 0
    except ValueError:  # No part of a name is empty, or too long.
        return False
    return known and len(url) <= LONGEST_URL and url.isprintable() and " " not in url
