"""Sender of push deliveries over HTTP, with limits of time and size."""

import asyncio
import socket
import ssl
import time
from contextlib import suppress
from typing import Final

import httpcore

from pulljobs.conf import Settings
from pulljobs.engine.telemetry import PushAnswered, emit
from pulljobs.errors import Retry
from pulljobs.handlers import ClaimedJob
from pulljobs.webhooks.addresses import Guard
from pulljobs.webhooks.answers import PushAnswer, judge, make_excerpt
from pulljobs.webhooks.network import AddressRefused, GuardedNetwork
from pulljobs.webhooks.requests import Endpoint, Origin, headers_of, secrets_of

KEPT_ALIVE: Final = 15.0
"""Seconds for which an idle connection is kept open."""
KEEPALIVE: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
BODY_SECONDS: Final = 1.0
"""Seconds for reading the body of an answer, after its status."""

FAILURES: Final = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError)


class PushSender:
    """Sender of the push deliveries of one process. Only code on its event loop may use it.

    Each host and port has its own pool of keep-alive connections, so that a slow endpoint delays no
    other. Proxies that environment variables name are not used, because they would connect to
    addresses that nothing has checked.
    """

    def __init__(self, limits: Settings) -> None:
        self._limits = limits
        self._network = GuardedNetwork(Guard(limits.PUSH_ALLOWED_NETWORKS), limits.PUSH_PORTS)
        self._pools: dict[Origin, tuple[httpcore.AsyncConnectionPool, float]] = {}
        self._tls = ssl.create_default_context()

    async def send(self, endpoint: Endpoint, job: ClaimedJob) -> None:
        """POST a job to its endpoint. Raise Retry with the reason unless the answer is 2xx."""
        secrets = secrets_of(job, endpoint)
        try:
            answer = await self._exchange(endpoint, job)
        except (TimeoutError, ssl.SSLError, *FAILURES) as error:
            emit(PushAnswered(*job.handler.names, _why(error)))
            timeout = self._limits.PUSH_TIMEOUT.total_seconds()
            raise Retry(reason=_reason(error, timeout, job.payload, secrets)) from None
        emit(PushAnswered(*job.handler.names, f"{answer.status // 100}xx"))
        longest = self._limits.PUSH_MAX_RETRY_AFTER
        judge(answer, sent=job.payload, secrets=secrets, longest=longest)

    async def close(self) -> None:
        pools, self._pools = self._pools, {}
        for pool, _used in pools.values():
            await pool.aclose()
        self._network.close()

    async def close_idle(self) -> None:
        """Close the connections to endpoints without a delivery in the last KEPT_ALIVE seconds."""
        now = time.monotonic()
        idle = [at for at, (_pool, used) in self._pools.items() if now - used > KEPT_ALIVE]
        for origin in idle:
            pool, _used = self._pools[origin]
            if all(connection.is_idle() for connection in pool.connections):
                del self._pools[origin]
                await pool.aclose()

    async def _exchange(self, endpoint: Endpoint, job: ClaimedJob) -> PushAnswer:
        request = self._request(endpoint, job)
        pool = self._pool(endpoint.origin)
        async with asyncio.timeout(self._limits.PUSH_TIMEOUT.total_seconds()):
            response = await pool.handle_async_request(request)
        try:
            headers = {
                name.lower().decode(): value.decode("latin-1") for name, value in response.headers
            }
            return PushAnswer(response.status, headers, await self._body(response))
        finally:
            # Before the end of the body this closes the connection.
            await response.aclose()

    def _request(self, endpoint: Endpoint, job: ClaimedJob) -> httpcore.Request:
        scheme, host, port = endpoint.origin
        connect = self._limits.PUSH_CONNECT_TIMEOUT.total_seconds()
        return httpcore.Request(
            "POST",
            httpcore.URL(scheme=scheme, host=host, port=port, target=endpoint.target),
            headers=headers_of(job, endpoint, self._limits),
            content=job.payload,
            extensions={"timeout": {"connect": connect}},
        )

    async def _body(self, response: httpcore.Response) -> bytes:
        """Return the body as far as it arrives within the limits of size and time.

        A body that breaks off is no error, because the status decides the outcome.
        """
        read = bytearray()
        with suppress(TimeoutError, ssl.SSLError, httpcore.NetworkError, httpcore.ProtocolError):
            async with asyncio.timeout(BODY_SECONDS):
                async for chunk in response.aiter_stream():
                    read += chunk
                    if len(read) > self._limits.PUSH_MAX_ANSWER_BYTES:
                        break
        return bytes(read[: self._limits.PUSH_MAX_ANSWER_BYTES])

    def _pool(self, origin: Origin) -> httpcore.AsyncConnectionPool:
        known = self._pools.get(origin)
        pool = known[0] if known else self._new_pool()
        self._pools[origin] = pool, time.monotonic()
        return pool

    def _new_pool(self) -> httpcore.AsyncConnectionPool:
        return httpcore.AsyncConnectionPool(
            ssl_context=self._tls,
            # The worker claims no more jobs for one host than it may send at once.
            max_connections=None,
            max_keepalive_connections=self._limits.PUSH_PER_HOST,
            keepalive_expiry=KEPT_ALIVE,
            http1=True,
            socket_options=_socket_options(self._limits.PUSH_TIMEOUT.total_seconds()),
            network_backend=self._network,
        )


def _socket_options(timeout: float) -> list[httpcore.SOCKET_OPTION]:
    """Return options of TCP that end a connection whose endpoint no longer answers.

    Options that the operating system does not have are omitted.
    """
    options = {**KEEPALIVE, "TCP_USER_TIMEOUT": round(timeout * 1000)}
    return [
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        *(
            (socket.IPPROTO_TCP, getattr(socket, name), value)
            for name, value in options.items()
            if hasattr(socket, name)
        ),
    ]


def _reason(error: Exception, timeout: float, sent: bytes, secrets: tuple[str, ...]) -> str:
    text = str(error) or type(error).__name__
    match error:
        case AddressRefused():
            return f"not delivered: {text}"
        case TimeoutError():
            return f"no answer within {timeout:g} s"
        case httpcore.ConnectTimeout() if not str(error):  # after GuardedNetwork has connected
            return "no connection: TLS took longer than PULLJOBS['PUSH_CONNECT_TIMEOUT']"
        case httpcore.ReadError() | httpcore.WriteError():
            return "no answer: the connection broke off"
        case httpcore.ProtocolError():
            # The error may quote the answer.
            quoted = make_excerpt(text.encode(), sent, secrets)
            return f"no HTTP answer: {quoted}" if quoted else "no HTTP answer"
    return f"no connection: {text}"


def _why(error: Exception) -> str:
    timeouts = (TimeoutError, httpcore.TimeoutException)
    return "timeout" if isinstance(error, timeouts) else "unreachable"
