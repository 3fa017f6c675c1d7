"""HMAC gateway: an optional check that requests are signed with a shared secret.

    X-Broker-Signature: t=<Unix seconds>,v1=<hex HMAC-SHA256(secret, "<t>." + body)>

Requests without a valid, recent signature are refused, except those to paths in GATEWAY_EXEMPT. The
signature covers neither path, method nor query, and so does not replace the tokens. The gateway is
off unless PULLJOBS['GATEWAY_SECRETS'] names a secret.
"""

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

from pulljobs.api import access_refusals, error_answers, exceptions, middleware, raw_bodies
from pulljobs.conf import settings
from pulljobs.signing import sign_for_gateway

SIGNATURE: Final = "X-Broker-Signature"
_SECONDS: Final = re.compile(r"[0-9]{1,15}")

View = Callable[..., Any]
Render = Callable[[Exception, dict[str, Any]], HttpResponse | None]
"""Exception handler that renders the refusals of a route."""


def guard(pattern: URLPattern, render: Render = error_answers.as_text) -> URLPattern:
    """Wrap the view of a route so that it checks the signature first, and return the route.

    `render` makes the answers to refused requests.
    """
    pattern.callback = _guard_view(pattern.callback, render)
    return pattern


def _guard_view(view: View, render: Render) -> View:
    """Return a view that checks the signature of a request before it calls `view`.

    `wraps` copies the attributes of the view, such as the exemption from CSRF.
    """
    if iscoroutinefunction(view):

        @wraps(view)
        async def answer_async(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            return check_request(request, render) or await view(request, *args, **kwargs)

        return answer_async

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return check_request(request, render) or view(request, *args, **kwargs)

    return answer


def check_request(request: HttpRequest, render: Render) -> HttpResponse | None:
    """Return the refusal of a request as an answer, or None if the request may pass.

    The view can read the body afterwards as if it were unread.
    """
    if not settings().GATEWAY_SECRETS or request.path_info.startswith(
        tuple(settings().GATEWAY_EXEMPT)
    ):
        return None
    try:
        check_signature(request.headers.get(SIGNATURE, ""), buffer_body(request))
    except exceptions.RefusedRequest as error:
        response = render(error, {})
        if response is not None:
            response[middleware.REQUEST_ID] = middleware.ensure_id(request)
            response["Cache-Control"] = "no-store"
        return response
    return None


def check_signature(signature: str, body: bytes) -> None:
    """Raise a refusal unless the header signs the body.

    It is 401 if the header is malformed, 403 if its time is too far off or its digest wrong. As in
    the reference broker, there may be spaces around the comma.
    """
    parts = dict(part.strip().partition("=")[::2] for part in signature.split(","))
    if signature.count(",") != 1 or set(parts) != {"t", "v1"} or not _SECONDS.fullmatch(parts["t"]):
        raise access_refusals.unsigned()
    if abs(time.time() - int(parts["t"])) > settings().GATEWAY_TOLERANCE.total_seconds():
        raise access_refusals.signed_long_ago()
    if not any(_is_signed_with(secret, parts, body) for secret in settings().GATEWAY_SECRETS):
        raise access_refusals.wrong_signature()


def buffer_body(request: HttpRequest) -> bytes:
    """Read and return the body, and leave it readable for the view.

    Raise a refusal: 413 if it is larger than any route takes, and 400 as `read_up_to` does.
    """
    limit = settings().largest_body
    body = raw_bodies.read_up_to(request, limit + 1)
    if len(body) > limit:
        raise exceptions.too_large(limit, "send less at once")
    request._body = body
    request._stream = BytesIO(body)
    return body


def _is_signed_with(secret: str, parts: dict[str, str], body: bytes) -> bool:
    return constant_time_compare(sign_for_gateway(secret, parts["t"], body), parts["v1"])
