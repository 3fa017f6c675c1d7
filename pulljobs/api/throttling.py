"""How often a caller may call, by the name of the route; counted in Django's default cache.

The count is DRF's: the calls of the last second, minute, hour or day. Processes share it if they
share the cache.
"""

from typing import Final, cast

from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle, SimpleRateThrottle
from rest_framework.views import APIView

from pulljobs.api.authentication import Publisher
from pulljobs.conf import settings
from pulljobs.models import Channel, Consumer

SOON: Final = 1.0


class CallerThrottle(BaseThrottle):
    """For views of DRF."""

    seconds: float | None = None

    def allow_request(self, request: Request, view: APIView) -> bool:
        match = request.resolver_match
        scope = match.url_name if match else None
        self.seconds = seconds_to_wait(scope or "", self._caller(request))
        return self.seconds is None

    def wait(self) -> float | None:
        return self.seconds

    def _caller(self, request: Request) -> object:
        if isinstance(request.auth, Publisher):
            return request.auth.producer
        if isinstance(request.auth, Channel | Consumer):
            return request.auth
        # Never by what a user shows: its primary key may be the token itself.
        return request.user if request.user.pk else self.get_ident(request)


def seconds_to_wait(scope: str, caller: object) -> float | None:
    """None: this call counts, and may go on. Reads and writes the cache, so not on an event loop.

    A caller is a row, of whatever model, or an address.
    """
    rate = settings().THROTTLES.get(scope)
    if rate is None:
        return None
    window = Window(scope, rate, caller)
    return None if window.has_room() else window.wait() or SOON


class Window(SimpleRateThrottle):
    def __init__(self, scope: str, rate: str, caller: object) -> None:
        self.scope, self.rate = scope, rate
        super().__init__()
        identity = getattr(caller, "pk", caller)
        # Of a user by a session the type would be that of a lazy object.
        self.cache_key = f"pulljobs:throttle:{scope}:{caller.__class__.__name__}:{identity}"

    def has_room(self) -> bool:
        return self.allow_request(
            cast("Request", None), cast("APIView", None)
        )  # it looks at neither

    def get_cache_key(self, request: object, view: object) -> str:
        return self.cache_key
