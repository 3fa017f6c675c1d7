"""Check of the addresses to which push may connect: public ones, and those of a setting."""

import ipaddress
from collections.abc import Sequence
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

UNICAST: Final = ipaddress.IPv6Network("2000::/3")
NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
REFUSED: Final = tuple(
    ipaddress.ip_network(network)
    for network in (
        "192.0.0.0/24",  # protocol assignments; Python calls some of them public
        "168.63.129.16/32",  # the host of an Azure machine
        "192.88.99.0/24",  # relays of 6to4
        "2001::/32",  # Teredo and 6to4 hide an IPv4 address behind any relay
        "2002::/16",
        "3fff::/20",  # documentation
    )
)


class Guard:
    """Guard against SSRF: it permits public addresses and networks in a setting, and no others."""

    def __init__(self, allowed: Sequence[str]) -> None:
        """Parse the networks that are allowed in addition to public addresses, such as 10.0.0.0/8.

        Raise ValueError for a text that is no network.
        """
        self._allowed = tuple(ipaddress.ip_network(network) for network in allowed)

    def permits(self, text: str) -> bool:
        """Return True if a text is a numeric IP address to which push may connect."""
        try:
            address = _plain(ipaddress.ip_address(text))
        except ValueError:
            return False
        return any(address in network for network in self._allowed) or is_public(address)


def is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address not in UNICAST:
        return False
    special = address.is_multicast or address.is_reserved or address.is_unspecified
    refused = any(address in network for network in REFUSED)
    return address.is_global and not special and not refused


def _plain(address: Address) -> Address:
    """Return the IPv4 address in a mapped or NAT64 address of IPv6, else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address
