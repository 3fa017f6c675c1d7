"""A broker in memory behind a real socket."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

from tests.client.broker import FakeBroker
from tests.sessions import wait_until


@contextmanager
def served_at(broker: FakeBroker, place: socket.socket | None = None) -> Iterator[str]:
    """Serve a broker during the block, on the given socket or a new one. Yield its URL."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        response = await broker.answer_async(await _request(scope, receive))
        headers = [(b"content-type", b"application/json")]
        start = {"type": "http.response.start", "status": response.status_code, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": response.content})

    config = uvicorn.Config(application, port=0, lifespan="off", log_level="error")
    server = uvicorn.Server(config)
    serving = server.serve([place] if place else None)
    thread = threading.Thread(target=lambda: asyncio.run(serving), daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join()


async def _request(scope: Any, receive: Any) -> httpx.Request:
    body, more = b"", True
    while more:
        event = await receive()
        body, more = body + event.get("body", b""), event.get("more_body", False)
    url = f"http://broker{scope['path']}"
    return httpx.Request(scope["method"], url, headers=scope["headers"], content=body)
