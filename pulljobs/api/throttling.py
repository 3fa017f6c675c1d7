"""Rate limits of requests, per route and caller, by the setting PULLJOBS['THROTTLES'].

DRF counts the requests of the last second, minute, hour or day in Django's default cache.
Processes share the count if they share the cache.
"""

import logging
from hashlib import sha256
from typing import Final, cast

from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle, SimpleRateThrottle
from rest_framework.views import APIView

from pulljobs.api.authentication import Publisher
from pulljobs.conf import settings
from pulljobs.engine.repeated_warnings import RepeatedWarning
from pulljobs.engine.telemetry import describe_error
from pulljobs.loops import QUIET
from pulljobs.models import Channel, Consumer

_failure: Final = RepeatedWarning(logging.getLogger("pulljobs.api"), QUIET)
SOON: Final = 1.0


class CallerThrottle(BaseThrottle):
    """Throttle of DRF's views, by the name of the route and by caller, or by address if unknown."""

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
        # Not by `auth` of a user: the primary key of that row may be the token itself.
        return request.user if request.user.pk else self.get_ident(request)


def is_limited(scope: str) -> bool:
    """Return True if PULLJOBS['THROTTLES'] has a rate for this name of a route."""
    return scope in settings().THROTTLES


def seconds_to_wait(scope: str, caller: object) -> float | None:
    """Count a request of a caller to a route, the scope. Return None if it may go on.

    Otherwise it is not counted: return the seconds after which the caller may repeat it. `caller`
    is a row of any model, or an address. Do not call this on an event loop: it uses the cache.

    While the cache fails, no request is refused: consumers need the broker more than the limit.
    That is logged once a second at most.
    """
    rate = settings().THROTTLES.get(scope)
    if rate is None:
        return None
    window = RateWindow(scope, rate, caller)
    try:
        return None if window.has_room() else window.wait() or SOON
    except Exception as error:  # Each backend of caches raises errors of its own.
        _failure.log("The default cache failed to count a request: %s", describe_error(error))
        return None


class RateWindow(SimpleRateThrottle):
    """Requests of one caller to one route in the last second, minute, hour or day."""

    def __init__(self, scope: str, rate: str, caller: object) -> None:
        self.scope, self.rate = scope, rate
        super().__init__()
        identity = getattr(caller, "pk", caller)
        # Digested, as an address comes from the caller: memcached refuses long keys, for example.
        digest = sha256(f"{identity}".encode("utf-8", "surrogatepass")).hexdigest()
        # `type` of a session's user would be that of a lazy object.
        self.cache_key = f"pulljobs:throttle:{scope}:{caller.__class__.__name__}:{digest}"

    def has_room(self) -> bool:
        """Count a request and return True, or return False if the limit is reached."""
        # SimpleRateThrottle uses neither argument.
        return self.allow_request(cast("Request", None), cast("APIView", None))

    def get_cache_key(self, request: object, view: object) -> str:
        return self.cache_key
