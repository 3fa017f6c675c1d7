"""Bodies as they come: read before any parser touches them."""

from django.core.exceptions import TooManyFieldsSent
from django.http import QueryDict
from rest_framework.request import Request

from pulljobs.api import exceptions

FORM = "application/x-www-form-urlencoded"
LARGEST_FORM = 16 * 1024


def read(request: Request, largest: int, advice: str) -> bytes:
    """The whole body, whatever its Content-Type; 413, with the advice, if it is larger."""
    body: bytes = request._request.read(largest + 1)
    if len(body) > largest:
        raise exceptions.too_large(largest, advice)
    return body


def form(request: Request) -> QueryDict:
    """Fields of a form; 415 for what is none."""
    if request.META.get("CONTENT_TYPE", "").partition(";")[0] != FORM:
        raise exceptions.not_a_form()
    body = read(request, LARGEST_FORM, "send shorter fields")
    try:
        return QueryDict(body, encoding="utf-8")
    except TooManyFieldsSent as error:
        raise exceptions.bad_field("The form has too many fields: send fewer.") from error
