"""The HMAC gateway: requests bear a signature of their time and body, or are refused.

    X-Broker-Signature: t=<Unix seconds>,v1=<hex HMAC-SHA256(secret, "<t>." + body)>

Path, method and query are not signed, so it stands before the tokens and does not replace them.
Off unless PULLJOBS['GATEWAY_SECRETS'] names a secret.
"""

import base64
import hmac
import re
import time
from collections.abc import Callable
from functools import wraps
from io import BytesIO
from typing import Any, Final

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.crypto import constant_time_compare

from pulljobs.api import exceptions, request_ids
from pulljobs.conf import settings

SIGNATURE: Final = "X-Broker-Signature"
_SECONDS: Final = re.compile(r"[0-9]{1,15}")

View = Callable[..., Any]
Told = Callable[[Exception, dict[str, Any]], HttpResponse | None]
"""The form of the route's refusals."""


def guarded(pattern: URLPattern, told: Told = exceptions.as_text) -> URLPattern:
    """The route, with the gateway before its view, be that sync or async."""
    pattern.callback = _guarded(pattern.callback, told)
    return pattern


def _guarded(view: View, told: Told) -> View:
    """What marks a view, such as its exemption from CSRF, marks this one too."""
    if iscoroutinefunction(view):

        @wraps(view)
        async def answer_async(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            return refusal(request, told) or await view(request, *args, **kwargs)

        return answer_async

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return refusal(request, told) or view(request, *args, **kwargs)

    return answer


def refusal(request: HttpRequest, told: Told) -> HttpResponse | None:
    """None: it may pass, and its body can still be read."""
    if not settings().GATEWAY_SECRETS or request.path_info.startswith(
        tuple(settings().GATEWAY_EXEMPT)
    ):
        return None
    try:
        check(request.headers.get(SIGNATURE, ""), read(request))
    except exceptions.Refusal as error:
        response = told(error, {})
        if response is not None:
            response[request_ids.HEADER] = request_ids.of(request)
        return response
    return None


def check(signature: str, body: bytes) -> None:
    """Raise a Refusal of 401 for what is no signature, of 403 for one that is old or wrong."""
    parts = dict(part.partition("=")[::2] for part in signature.split(","))
    if signature.count(",") != 1 or set(parts) != {"t", "v1"} or not _SECONDS.fullmatch(parts["t"]):
        raise exceptions.unsigned()
    if abs(time.time() - int(parts["t"])) > settings().GATEWAY_TOLERANCE.total_seconds():
        raise exceptions.signed_long_ago()
    if not any(_is_by(secret, parts, body) for secret in settings().GATEWAY_SECRETS):
        raise exceptions.wrong_signature()


def sign(secret: str, seconds: str, body: bytes) -> str:
    """In hex; the secret in base64, the Unix time as it is sent."""
    key, said = base64.b64decode(secret), f"{seconds}.".encode() + body
    return hmac.new(key, said, "sha256").hexdigest()


def read(request: HttpRequest) -> bytes:
    """The body, up to what any route takes, left in place for whoever reads it next."""
    limit = settings().largest_body
    body: bytes = request.read(limit + 1)
    if len(body) > limit:
        raise exceptions.too_large(limit, "send less at once")
    request._body = body
    request._stream = BytesIO(body)
    return body


def _is_by(secret: str, parts: dict[str, str], body: bytes) -> bool:
    return constant_time_compare(sign(secret, parts["t"], body), parts["v1"])
