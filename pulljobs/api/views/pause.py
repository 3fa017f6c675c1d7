"""POST pause: for operators, nobody is given the consumer's jobs for a while."""

from datetime import datetime
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import auditing, operating
from pulljobs.api import problems, pull_bodies, raw_bodies
from pulljobs.api.authentication import user_name
from pulljobs.api.base_views import ProblemsTold, UserView, consumer_of
from pulljobs.api.times import parse_rfc_3339, rfc_3339

JSON = "application/json"
LARGEST_BODY = 1024
WRONG = "Until must be a time such as 2030-01-31T12:00:00Z, before the year 9000"


class Pause(ProblemsTold, UserView):
    needs = {"POST": ["pulljobs.change_consumer"]}

    def post(self, request: Request, **names: str) -> Response:
        _check_type(request)
        consumer = consumer_of(names)
        until = _until(raw_bodies.read(request, LARGEST_BODY, "send Until and nothing else"))
        operating.pause(consumer, until)
        if by := user_name(request):
            auditing.note_pause(consumer, until, by=by)
        return Response({"PauseUntil": None if until is None else rfc_3339(until)})


def _check_type(request: Request) -> None:
    """A page of another site can have a browser send a form, with its user's login, but no JSON.

    Browsers tell the origin; programs do not, and leave the type out, or to curl.
    """
    of_page = "Origin" in request.headers
    if of_page and request.META.get("CONTENT_TYPE", "").partition(";")[0].strip().lower() != JSON:
        raise problems.not_json()


def _until(body: bytes) -> datetime | None:
    given: Any = pull_bodies.fields(body).get("until")
    if given is None:
        return None
    try:
        until = parse_rfc_3339(given)
        operating.check_pause(until)
    except (ValueError, TypeError) as error:
        raise problems.bad_body(WRONG) from error
    return until
