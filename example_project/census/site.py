"""The web server of `demo --serve`, for this machine only."""

import secrets
from collections.abc import Callable
from typing import Final

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.core.wsgi import get_wsgi_application

HOST: Final = "127.0.0.1"
USER: Final = "demo"


class Site(ThreadedWSGIServer):
    """The project's pages and the admin's static files, while somebody serves them."""

    def __init__(self, port: int, at_each_look: Callable[[], None]) -> None:
        super().__init__((HOST, port), WSGIRequestHandler)
        self.set_app(StaticFilesHandler(get_wsgi_application()))
        self._at_each_look = at_each_look

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/admin/"

    def service_actions(self) -> None:
        """Called about twice a second while it serves."""
        self._at_each_look()


def open_site(port: int, at_each_look: Callable[[], None]) -> Site:
    """On that port, or on any that is free when somebody has it."""
    try:
        return Site(port, at_each_look)
    except OSError:
        return Site(0, at_each_look)


def new_password() -> str:
    """The password, valid from now on, of the superuser of the demo."""
    password = secrets.token_urlsafe(9)
    User.objects.update_or_create(
        username=USER,
        defaults={"password": make_password(password), "is_staff": True, "is_superuser": True},
    )
    return password
