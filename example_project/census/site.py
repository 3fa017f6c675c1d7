"""Web server of `demo --serve`, which only this machine can reach."""

import secrets
import socket
from collections.abc import Callable
from typing import Final

import uvicorn
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.asgi import get_asgi_application

from pulljobs.api.asgi import with_pulls

HOST: Final = "127.0.0.1"
USER: Final = "demo"
SHUTDOWN_SECONDS: Final = 5


class Site:
    """Server of the admin and its static files, and of the API.

    It listens on `port`, or on a free port if that is taken. `at_each_look` is called every second.
    """

    def __init__(self, port: int, at_each_look: Callable[[], None]) -> None:
        self._socket = _listening(port)

        async def look() -> None:
            at_each_look()

        self._server = uvicorn.Server(
            uvicorn.Config(
                with_pulls(ASGIStaticFilesHandler(get_asgi_application())),
                lifespan="off",
                log_level="warning",
                callback_notify=look,
                timeout_notify=1,
                timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            )
        )

    def __enter__(self) -> "Site":
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self._socket.getsockname()[1]}/admin/"

    def serve_forever(self) -> None:
        """Serve until a signal, which uvicorn raises again as KeyboardInterrupt."""
        self._server.run(sockets=[self._socket])


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except OSError:
        return socket.create_server((HOST, 0))


def new_password() -> str:
    """Set a new password of the demo's superuser, which is created if missing, and return it."""
    password = secrets.token_urlsafe(9)
    User.objects.update_or_create(
        username=USER,
        defaults={"password": make_password(password), "is_staff": True, "is_superuser": True},
    )
    return password
