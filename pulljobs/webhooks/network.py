"""Connections of push deliveries, which go only to addresses that the guard permits."""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import httpcore

from pulljobs.webhooks.addresses import Guard

RESOLVERS: Final = 32
"""Number of threads for look-ups. A name has at most one, so that a slow name delays no other."""


class AddressRefused(httpcore.ConnectError):
    """Error for an address or a port that is not permitted. Its text does not name addresses."""


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """Network backend of httpcore's connection pools, which connects to permitted addresses only.

    It connects to the very addresses that it has checked, because a second look-up of the name
    could give others. The certificate is still checked for the name, and the header Host has it.
    All connections that wait for a name at a time share one look-up.
    """

    def __init__(self, guard: Guard, ports: Sequence[int]) -> None:
        self._guard, self._ports = guard, ports
        self._network = httpcore.AnyIOBackend()
        self._resolvers = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="resolver")
        self._looking_up: dict[str, asyncio.Future[list[str]]] = {}

    def close(self) -> None:
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Look up and check the host, and connect to it, all within `timeout` seconds.

        Raise AddressRefused if host or port is not permitted, ConnectTimeout after the timeout, and
        ConnectError if the name is not found or no address accepts the connection.
        """
        if self._ports and port not in self._ports:
            raise AddressRefused(f"port {port} is not among PULLJOBS['PUSH_PORTS']")
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._permitted(host)
                return await self._connect(addresses, port, timeout, socket_options)
        except TimeoutError:
            raise httpcore.ConnectTimeout(f"not connected within {timeout:g} s") from None

    async def _permitted(self, host: str) -> list[str]:
        addresses = await self._resolved(host)
        permitted = [address for address in addresses if self._guard.permits(address)]
        if not permitted:
            raise AddressRefused(
                "its address is not public, nor in PULLJOBS['PUSH_ALLOWED_NETWORKS']"
            )
        return permitted

    async def _resolved(self, host: str) -> list[str]:
        if _is_numeric(host):
            return [host]
        try:
            # A connection that stops waiting must not end the look-up for the others.
            return await asyncio.shield(self._look_up_once(host))
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"its name is not found: {error}") from error

    def _look_up_once(self, host: str) -> asyncio.Future[list[str]]:
        """Return the future of a name's addresses, by a look-up that is under way or a new one."""
        if (lookup := self._looking_up.get(host)) is None:
            loop = asyncio.get_running_loop()
            lookup = self._looking_up[host] = loop.run_in_executor(self._resolvers, _look_up, host)
            lookup.add_done_callback(lambda _lookup: self._looking_up.pop(host))
        return lookup

    async def _connect(
        self,
        addresses: Sequence[str],
        port: int,
        timeout: float | None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address that answers. Each try gets an equal share of the time."""
        share = None if timeout is None else timeout / len(addresses)
        for address in addresses[:-1]:
            try:
                return await self._network.connect_tcp(
                    address, port, share, socket_options=socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return await self._network.connect_tcp(
            addresses[-1], port, share, socket_options=socket_options
        )


def _look_up(host: str) -> list[str]:
    rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_how, sockaddr in rows))


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
