"""Finding brokers: every lookup is asked, and what any of them tells is a broker."""

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
    def __init__(
        self,
        urls: Sequence[str],
        subscription: Subscription,
        connection: Connection,
        *,
        interval: float,
        found: Callable[[str], None],
    ) -> None:
        """`found` is told every base URL, again at every poll."""
        tokens = {CHANNEL_TOKEN: subscription.channel_token}
        self._senders = {url: AsyncSender(url, tokens, connection) for url in urls}
        self._path = f"lookup?{httpx.QueryParams(channel=subscription.channel)}"
        self._interval, self._found = interval, found

    async def poll_forever(self) -> None:
        while True:
            for url in await self._poll():
                self._found(url)
            await asyncio.sleep(self._interval * random.uniform(1 - JITTER, 1 + JITTER))

    async def close(self) -> None:
        for sender in self._senders.values():
            await sender.close()

    async def _poll(self) -> list[str]:
        """What any of them tells; it ends the run only where all of them refuse."""
        told = await asyncio.gather(*(self._ask(url) for url in self._senders))
        refusals = [one for one in told if isinstance(one, Refused)]
        if len(refusals) == len(told):
            raise refusals[0]
        return sorted(set().union(*(one for one in told if not isinstance(one, Refused))))

    async def _ask(self, url: str) -> set[str] | Refused:
        try:
            answer = checked(await self._senders[url].send(Call("GET", self._path)))
            told = answer.json().get("Addresses", [])
        except (Unreachable, Refused) as error:
            log.lookup_failed(url, error)
            return error if isinstance(error, Refused) else set()
        return set(_usable(url, told if isinstance(told, list) else [told]))


def _usable(url: str, told: list[Any]) -> Iterator[str]:
    """Base URLs; none that would have the tokens sent in clear where the lookup is by TLS."""
    for address in told:
        try:
            base = base_of(str(address))
        except ConfigurationError as error:
            log.address_left_out(url, error)
            continue
        if urlsplit(url).scheme == "https" != urlsplit(base).scheme:
            log.not_by_tls(url, base)
        else:
            yield base
