"""Senders, which run flows over httpx, and change servers after an outage or an answer of 5xx."""

import asyncio
import gzip
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from pulljobs.client.bodies import now
from pulljobs.client.calls import Answer, Call, Flow, Pause
from pulljobs.client.connecting import Connection, httpx, make_client, urls_of
from pulljobs.client.errors import ClientError, Unreachable
from pulljobs.errors import ConfigurationError

T = TypeVar("T")
CallResult = Answer | Unreachable | None
"""Result of a `Call` that a flow has yielded, or None after a `Pause`."""
UNSENDABLE: Final = (
    "The request cannot be sent: a header has a character that HTTP does not allow. "
    "Look at the producer's id and the worker_id."
)
FAILURE: Final = 500
"""Lowest status of answers after which the next server is used."""
SLOW: Final = "The broker answers too slowly: its answer was not complete in time."
TRANSFER_SECONDS: Final = 60.0
"""Seconds that a call may take in addition to its own time limit, until its answer is complete."""


class Servers(Generic[T]):
    """Connections to the servers of one broker. The current one is used until it fails.

    A forked process opens its own: on shared ones, parent and child read each other's answers.
    """

    def __init__(self, base_urls: str | Sequence[str], make: Callable[[str], T]) -> None:
        urls = urls_of(base_urls)
        if not urls:
            raise ConfigurationError("Name at least one URL of the broker.")
        self._urls, self._make, self._position = urls, make, 0
        self._process, self._connections = os.getpid(), [make(url) for url in urls]

    @property
    def connections(self) -> list[T]:
        if self._process != os.getpid():
            self._connections = [self._make(url) for url in self._urls]
            self._process = os.getpid()
        return self._connections

    @property
    def current(self) -> T:
        return self.connections[self._position]

    def leave(self, failed: T) -> None:
        """Use the next server, unless another thread has left the failed server already."""
        position = self._position  # Read once: two threads may leave the server at the same time.
        if failed is self.connections[position]:
            self._position = (position + 1) % len(self._urls)


class Sender:
    """Synchronous sender of requests to one broker, which may have several servers."""

    def __init__(
        self, base_url: str | Sequence[str], tokens: Mapping[str, str], connection: Connection
    ) -> None:
        self._connection = connection
        self._servers = Servers(
            base_url, lambda url: make_client(httpx.Client, connection.options(url, tokens))
        )

    def run(self, flow: Flow[T]) -> T:
        """Send the requests of a flow until it ends, and return its value."""
        result: CallResult = None
        with closing(flow):
            while True:
                try:
                    effect = _resume(flow, result)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]  # of the flow
                result = self._do(effect)

    def close(self) -> None:
        for server in self._servers.connections:
            server.close()

    def _do(self, effect: Call | Pause) -> CallResult:
        if isinstance(effect, Pause):
            time.sleep(effect.seconds)
            return None
        server = self._servers.current
        try:
            answer = self._send(server, effect)
        except Unreachable as error:
            self._servers.leave(server)
            return error
        if answer.status >= FAILURE:
            self._servers.leave(server)
        return answer

    def _send(self, server: "httpx.Client", call: Call) -> Answer:
        sent_at = now()
        try:
            with server.stream(**_request(call, self._connection)) as response:
                body = b"".join(_in_time(response, sent_at + call.seconds + TRANSFER_SECONDS))
            return _answer(response, body, sent_at)
        except httpx.LocalProtocolError:
            # The text may quote a token, so the error is not chained.
            raise ClientError(UNSENDABLE) from None
        except httpx.RequestError as error:
            raise _unreachable(error) from error


class AsyncSender:
    """Asynchronous sender of requests to one broker, which may have several servers."""

    def __init__(
        self, base_url: str | Sequence[str], tokens: Mapping[str, str], connection: Connection
    ) -> None:
        self._connection = connection
        self._servers = Servers(
            base_url, lambda url: make_client(httpx.AsyncClient, connection.options(url, tokens))
        )

    async def run(self, flow: Flow[T]) -> T:
        """Send the requests of a flow until it ends, and return its value."""
        result: CallResult = None
        with closing(flow):  # Else the span of a cancelled flow ends later, in another context.
            while True:
                try:
                    effect = _resume(flow, result)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]  # of the flow
                result = await self._do(effect)

    async def close(self) -> None:
        for server in self._servers.connections:
            await server.aclose()

    async def _do(self, effect: Call | Pause) -> CallResult:
        if isinstance(effect, Pause):
            await asyncio.sleep(effect.seconds)
            return None
        try:
            return await self.send(effect)
        except Unreachable as error:
            return error

    async def send(self, call: Call) -> Answer:
        """Send a request once. Return its answer, or raise Unreachable if there is none."""
        server = self._servers.current
        try:
            answer = await self._send(server, call)
        except Unreachable:
            self._servers.leave(server)
            raise
        if answer.status >= FAILURE:
            self._servers.leave(server)
        return answer

    async def _send(self, server: "httpx.AsyncClient", call: Call) -> Answer:
        sent_at = now()
        try:
            async with asyncio.timeout(call.seconds + TRANSFER_SECONDS):
                response = await server.request(**_request(call, self._connection))
            return _answer(response, response.content, sent_at)
        except TimeoutError:
            raise Unreachable(SLOW) from None
        except httpx.LocalProtocolError:
            # The text may quote a token, so the error is not chained.
            raise ClientError(UNSENDABLE) from None
        except httpx.RequestError as error:
            raise _unreachable(error) from error


class Closing:
    """Base of classes that close their sender, in `close` or at the end of a `with` block."""

    _sender: Sender

    def close(self) -> None:
        self._sender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClosing:
    """Base of classes that close their sender in `close` or after an `async with` block."""

    _sender: AsyncSender

    async def close(self) -> None:
        await self._sender.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _resume(flow: Flow[T], result: CallResult) -> Call | Pause:
    """Resume a flow with the result of its last call or pause, and return what it yields next.

    Raise StopIteration at its end.
    """
    return flow.throw(result) if isinstance(result, Unreachable) else flow.send(result)


def _request(call: Call, connection: Connection) -> dict[str, Any]:
    body, gzip_from = call.body, connection.gzip_from
    headers = {"Content-Type": "application/json"} if body else {}
    if body and gzip_from is not None and len(body) >= gzip_from:
        body = gzip.compress(body, 1)
        headers["Content-Encoding"] = "gzip"
    return {
        "method": call.method,
        "url": call.path,
        "content": body or None,
        "headers": headers | connection.signature(body),
        "timeout": httpx.Timeout(call.seconds, connect=min(call.seconds, 5.0)),
    }


def _answer(response: httpx.Response, body: bytes, sent_at: float) -> Answer:
    return Answer(response.status_code, response.headers, body, sent_at, now())


def _in_time(response: httpx.Response, deadline: float) -> Iterator[bytes]:
    """Yield a body as it arrives. Raise Unreachable after `deadline`, a monotonic time."""
    for part in response.iter_bytes():
        yield part
        if now() > deadline:
            raise Unreachable(SLOW)


def _unreachable(error: httpx.RequestError) -> Unreachable:
    where = error.request.url.host if error._request is not None else "The broker"
    trouble = f"{where} cannot be reached: {type(error).__name__} {error}".rstrip()
    was_sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    return Unreachable(trouble, was_sent=was_sent)
