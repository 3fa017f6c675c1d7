"""Check of URLs that users configure."""

from typing import Final
from urllib.parse import urlsplit

LONGEST_URL: Final = 2_000


def is_absolute(url: str) -> bool:
    """Return True for a printable http or https URL with a valid host name and port.

    It must have no spaces and at most 2,000 characters.
    """
    try:
        parts = urlsplit(url)
        has_host = bool((parts.hostname or "").encode("idna"))
        known = parts.scheme in ("http", "https") and has_host and parts.port != 0
    except ValueError:  # No part of a name is empty, or too long.
        return False
    return known and len(url) <= LONGEST_URL and url.isprintable() and " " not in url
