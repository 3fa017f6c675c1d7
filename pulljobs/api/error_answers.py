"""Exception handlers that turn refusals into HTTP answers.

A refusal is an exception with a status and a sentence for the caller. The broker protocol answers
with the sentence as plain text (`as_text`). The lease protocol answers with
application/problem+json, which has a code for programs as well (`as_problem`).
"""

import logging
import math
from http import HTTPStatus
from typing import Any, Final

from django.http import HttpResponse, JsonResponse
from rest_framework.exceptions import APIException, NotAuthenticated
from rest_framework.views import set_rollback

from pulljobs.api.bodies import ProblemBody
from pulljobs.api.exceptions import is_outage, unreachable
from pulljobs.engine.telemetry import describe_error

logger = logging.getLogger("pulljobs.api")
TEXT: Final = "text/plain; charset=utf-8"
PROBLEM: Final = "application/problem+json"


def as_text(error: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """Return the answer to a refusal as plain text, or None for an error that Django handles.

    This is an exception handler of DRF.
    """
    refusal = refusal_of(error)
    if refusal is None:
        return None
    set_rollback()
    return HttpResponse(
        sentence_of(refusal),
        status=refusal.status_code,
        content_type=TEXT,
        headers=headers_of(refusal),
    )


def as_problem(error: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """Return a refusal as application/problem+json, or None for an error that Django handles."""
    refusal = refusal_of(error)
    if refusal is None:
        return None
    set_rollback()
    problem: ProblemBody = {
        "type": "about:blank",
        "title": HTTPStatus(refusal.status_code).phrase,
        "status": refusal.status_code,
        "detail": sentence_of(refusal),
        "code": str(refusal.get_codes()),
    }
    return JsonResponse(
        problem,
        status=refusal.status_code,
        content_type=PROBLEM,
        headers=headers_of(refusal),
    )


def refusal_of(error: Exception) -> APIException | None:
    """Return the refusal that answers an error: the error itself, or 503 for a database outage.

    Return None for an error that is neither, which Django handles.
    """
    if is_outage(error):
        logger.warning("The database failed a request: %s", describe_error(error))
        return unreachable()
    return error if isinstance(error, APIException) else None


def sentence_of(refusal: APIException) -> str:
    """Return the sentence of a refusal for the caller, with advice where that of DRF has none."""
    if isinstance(refusal, NotAuthenticated):
        return "Log in as a user of Django: by Basic authentication, a token or a session."
    return str(refusal.detail)


def headers_of(refusal: APIException) -> dict[str, str]:
    """Return WWW-Authenticate and Retry-After, if the refusal has values for them."""
    headers = {}
    if (scheme := getattr(refusal, "auth_header", None)) is not None:
        headers["WWW-Authenticate"] = scheme
    if (seconds := getattr(refusal, "wait", None)) is not None:
        headers["Retry-After"] = str(math.ceil(seconds))
    return headers
