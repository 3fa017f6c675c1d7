"""Discovery of brokers by polls of lookup URLs, which answer with the addresses of brokers."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from pulljobs.client import log
from pulljobs.client.calls import Call, checked
from pulljobs.client.connecting import CHANNEL_TOKEN, Connection, Subscription, base_of, httpx
from pulljobs.client.errors import Refused, Unreachable
from pulljobs.client.sending import AsyncSender
from pulljobs.errors import ConfigurationError

JITTER: Final = 0.3


class Discovery:
    """Poller of the lookup URLs of a consumer."""

    def __init__(
        self,
        urls: Sequence[str],
        subscription: Subscription,
        connection: Connection,
        *,
        interval: float,
        on_address: Callable[[str], None],
    ) -> None:
        """Take the lookup URLs to poll, and the interval of the polls in seconds.

        After each poll `on_address` is called with the base URL of every broker.
        """
        tokens = {CHANNEL_TOKEN: subscription.channel_token}
        self._senders = {url: AsyncSender(url, tokens, connection) for url in urls}
        self._path = f"lookup?{httpx.QueryParams(channel=subscription.channel)}"
        self._interval, self._on_address = interval, on_address

    async def poll_forever(self) -> None:
        while True:
            for url in await self._poll():
                self._on_address(url)
            await asyncio.sleep(self._interval * random.uniform(1 - JITTER, 1 + JITTER))

    async def close(self) -> None:
        for sender in self._senders.values():
            await sender.close()

    async def _poll(self) -> list[str]:
        """Return the base URLs of brokers that the lookups know, sorted.

        Lookups that are unreachable or answer with an error know none. If each of them answers
        with an error, raise it as Refused.
        """
        results = await asyncio.gather(*(self._ask(url) for url in self._senders))
        refusals = [result for result in results if isinstance(result, Refused)]
        if len(refusals) == len(results):
            raise refusals[0]
        return sorted(set().union(*(urls for urls in results if not isinstance(urls, Refused))))

    async def _ask(self, url: str) -> set[str] | Refused:
        try:
            answer = checked(await self._senders[url].send(Call("GET", self._path)))
            addresses = answer.json().get("Addresses", [])
        except (Unreachable, Refused) as error:
            log.lookup_failed(url, error)
            return error if isinstance(error, Refused) else set()
        return set(_usable(url, addresses if isinstance(addresses, list) else [addresses]))


def _usable(url: str, addresses: list[Any]) -> Iterator[str]:
    """Yield the addresses that a lookup at `url` returned and that are usable, as base URLs.

    After a lookup by TLS, those with plain HTTP are not: they would get the tokens in clear.
    """
    for address in addresses:
        try:
            base = base_of(str(address))
        except ConfigurationError as error:
            log.address_left_out(url, error)
            continue
        if urlsplit(url).scheme == "https" != urlsplit(base).scheme:
            log.not_by_tls(url, base)
        else:
            yield base
