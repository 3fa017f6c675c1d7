"""Discovery of brokers by polls of lookup URLs, which answer with the addresses of brokers."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from pulljobs.client import log
from pulljobs.client.calls import Call, checked
from pulljobs.client.connecting import (
    CHANNEL_TOKEN,
    Connection,
    Subscription,
    base_of,
    httpx,
    without_login,
)
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

        `on_address` is called with the base URL of each broker that a lookup returns, at once: a
        lookup that answers late, or not at all, delays no other.
        """
        tokens = {CHANNEL_TOKEN: subscription.channel_token}
        self._senders = {url: AsyncSender(url, tokens, connection) for url in urls}
        self._path = f"lookup?{httpx.QueryParams(channel=subscription.channel)}"
        self._interval, self._on_address = interval, on_address

    async def poll_forever(self) -> None:
        while True:
            await self._poll()
            await asyncio.sleep(self._interval * random.uniform(1 - JITTER, 1 + JITTER))

    async def close(self) -> None:
        for sender in self._senders.values():
            await sender.close()

    async def _poll(self) -> None:
        """Ask all lookups. If each of them answers with a refusal, raise the first."""
        results = await asyncio.gather(*map(self._ask, self._senders))
        refusals = [refusal for refusal in results if refusal is not None]
        if len(refusals) == len(results):
            raise refusals[0]

    async def _ask(self, url: str) -> Refused | None:
        """Report the brokers that the lookup at `url` returns. Return its refusal, if any."""
        try:
            answer = checked(await self._senders[url].send(Call("GET", self._path)))
            addresses = answer.json().get("Addresses", [])
        except (Unreachable, Refused) as error:
            log.lookup_failed(without_login(url), error)
            return error if isinstance(error, Refused) else None
        for base in _usable(url, addresses if isinstance(addresses, list) else [addresses]):
            self._on_address(base)
        return None


def _usable(url: str, addresses: list[Any]) -> Iterator[str]:
    """Yield the addresses that a lookup at `url` returned and that are usable, as base URLs.

    After a lookup by TLS, those with plain HTTP are not: they would get the tokens in clear.
    """
    for address in addresses:
        try:
            base = base_of(str(address))
        except ConfigurationError as error:
            log.address_left_out(without_login(url), error)
            continue
        if urlsplit(url).scheme == "https" != urlsplit(base).scheme:
            log.not_by_tls(without_login(url), without_login(base))
        else:
            yield base
