"""Cheapest possible ASGI application: `uvicorn benchmarks.bare_asgi:application`."""

from typing import Any


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Read the body and answer with as many bytes as the query string says."""
    while (await receive()).get("more_body"):
        pass
    body = b"x" * int(scope["query_string"] or b"0")
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
