"""Connections that go only to addresses which were checked, and to those very ones."""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import httpcore

from pulljobs.webhooks.addresses import Guard

RESOLVERS: Final = 32
"""Threads that look names up, at most one for a name: a slow server must not hold up others."""


class Refused(httpcore.ConnectError):
    """By the guard; the text tells nothing of what a name resolves to."""


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """What a connection pool connects with.

    A name is looked up once for a connection, or for all that wait for it together, and what was
    found and checked is connected to: no second look-up could give another answer. The name still
    stands in the certificate and in Host.
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
        """ConnectTimeout after `timeout` seconds for everything together."""
        if self._ports and port not in self._ports:
            raise Refused(f"port {port} is not among PULLJOBS['PUSH_PORTS']")
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._permitted(host)
                return await self._connect(addresses, port, timeout, socket_options)
        except TimeoutError:
            raise httpcore.ConnectTimeout(f"not connected within {timeout:g} s") from None

    async def _permitted(self, host: str) -> list[str]:
        found = await self._resolved(host)
        permitted = [address for address in found if self._guard.permits(address)]
        if not permitted:
            raise Refused("its address is not public, nor in PULLJOBS['PUSH_ALLOWED_NETWORKS']")
        return permitted

    async def _resolved(self, host: str) -> list[str]:
        if _is_numeric(host):
            return [host]
        try:
            # Whoever waits no longer must not end it for the others.
            return await asyncio.shield(self._answer_for(host))
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"its name is not found: {error}") from error

    def _answer_for(self, host: str) -> asyncio.Future[list[str]]:
        """Of the look-up that is under way, or of a new one."""
        if (found := self._looking_up.get(host)) is None:
            loop = asyncio.get_running_loop()
            found = self._looking_up[host] = loop.run_in_executor(self._resolvers, _look_up, host)
            found.add_done_callback(lambda _found: self._looking_up.pop(host))
        return found

    async def _connect(
        self,
        addresses: Sequence[str],
        port: int,
        timeout: float | None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None,
    ) -> httpcore.AsyncNetworkStream:
        """To the first that answers; each gets an even share of the time."""
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
