"""ASGI application that claims and settles as the API does, without its HTTP layers.

`uvicorn benchmarks.sql_asgi:application` checks no token, validates nothing and has no long polls.
"""

import asyncio
import json
import os
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any, Final

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.web_settings"
django.setup()
_calls = import_module("benchmarks.sql_calls")  # It imports models.

ACKING_THREADS: Final = 4

_threads: Final = {
    # The low-water marks of a consumer belong to a connection.
    "pull": ThreadPoolExecutor(1, initializer=_calls.dedicate),
    "ack": ThreadPoolExecutor(ACKING_THREADS, initializer=_calls.dedicate),
}


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer a pull or an ack of the lease protocol, and other requests with an empty body."""
    name = scope["path"].rpartition("/")[2]
    body, answer = await _read(receive), b""
    if threads := _threads.get(name):
        call = getattr(_calls, name)
        answer = await asyncio.get_running_loop().run_in_executor(threads, call, json.loads(body))
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


async def _read(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        part = await receive()
        body, more = body + part["body"], part.get("more_body")
    return body
