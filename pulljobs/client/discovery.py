"""Finding brokers: every lookup is asked, and what any of them tells is a broker."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final

from pulljobs.client import log
from pulljobs.client.calls import Call, checked
from pulljobs.client.connecting import CHANNEL_TOKEN, Connection, Subscription, httpx
from pulljobs.client.errors import Unreachable
from pulljobs.client.sending import AsyncSender

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
        told = await asyncio.gather(*(self._ask(url) for url in self._senders))
        return sorted({address.rstrip("/") for addresses in told for address in addresses})

    async def _ask(self, url: str) -> list[str]:
        try:
            answer = checked(await self._senders[url].send(Call("GET", self._path)))
        except Unreachable as error:
            log.lookup_failed(url, error)
            return []
        return list(answer.json().get("Addresses", []))
