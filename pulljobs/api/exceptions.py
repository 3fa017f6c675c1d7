"""Refusals of the API: the status, and a sentence that says what to do.

The broker protocol answers with the sentence as plain text (`as_text`). The lease protocol answers
with application/problem+json, which has a code for programs as well (`as_problem`).
"""

import logging
import math
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from django.db import InterfaceError, OperationalError
from django.http import HttpResponse, JsonResponse
from rest_framework.exceptions import APIException, MethodNotAllowed, NotAuthenticated
from rest_framework.views import set_rollback

from pulljobs.api.bodies import ProblemBody
from pulljobs.states import State
from pulljobs.storage.rows import Refusal

logger = logging.getLogger("pulljobs.api")

TEXT: Final = "text/plain; charset=utf-8"
PROBLEM: Final = "application/problem+json"
UNREACHABLE: Final = (OperationalError, InterfaceError)
SOON: Final = 1
"""Seconds after which to repeat a request that failed for a moment."""
A_WHILE: Final = 5
"""Seconds after which to repeat a pull that exceeds the limit of waiting pulls."""
NOT_TAKEN: Final = {
    Refusal.DELETED: "The consumer is deleted: restore it first.",
    Refusal.PAUSED: "The consumer or its channel is paused: try again later.",
    Refusal.BUSY_KEY: "A job of its key is in flight or comes before it: take that job first.",
    Refusal.MAX_IN_FLIGHT: "The consumer holds as many jobs as it may: settle some first.",
}


class RefusedRequest(APIException):
    """Refusal with its code for programs; without a code it has the name of the status."""

    def __init__(
        self, status_code: int, sentence: str, code: str | None = None, *, retry_after: int = 0
    ) -> None:
        super().__init__(sentence, code or HTTPStatus(status_code).name.lower())
        self.status_code = status_code
        if retry_after:
            self.wait = retry_after


unreachable: Final = partial(
    RefusedRequest,
    503,
    "The database can't be reached: try again.",
    "unavailable",
    retry_after=SOON,
)
row_locked: Final = partial(
    RefusedRequest,
    503,
    "Another transaction keeps the row of a job locked: repeat the request.",
    "unavailable",
    retry_after=SOON,
)
unknown_channel: Final = partial(
    RefusedRequest, 404, "There is no such channel: check its name in the URL.", "unknown_channel"
)
wrong_channel_token: Final = partial(
    RefusedRequest,
    403,
    "Send the channel's token as X-Broker-Channel-Token.",
    "wrong_channel_token",
)
unknown_consumer: Final = partial(
    RefusedRequest,
    401,
    "The channel has no such consumer: check its name in the URL.",
    "unknown_consumer",
)
wrong_consumer_token: Final = partial(
    RefusedRequest,
    403,
    "Send the consumer's token as X-Broker-Consumer-Token.",
    "wrong_consumer_token",
)
no_channel: Final = partial(
    RefusedRequest, 404, "There is no such channel: PUT it first, or check its name in the URL."
)
no_consumer: Final = partial(
    RefusedRequest, 404, "The channel has no such consumer: check its name in the URL."
)
no_producer: Final = partial(
    RefusedRequest, 404, "There is no such producer: check its name in the URL."
)
unknown_producer: Final = partial(
    RefusedRequest, 401, "Send the id of a producer that exists as X-Broker-Producer-ID."
)
wrong_producer_token: Final = partial(
    RefusedRequest, 403, "Send the producer's token as X-Broker-Producer-Token."
)
unknown_message: Final = partial(
    RefusedRequest, 404, "The channel has no such message: check its id in the URL."
)
unknown_path: Final = partial(
    RefusedRequest,
    404,
    "There is nothing at this path: check it, and leave out a slash at its end.",
)
push_consumer: Final = partial(
    RefusedRequest,
    412,
    "Jobs are pushed to this consumer: make it a pull consumer first.",
    "push_consumer",
)
unknown_job: Final = partial(
    RefusedRequest, 404, "There is no such job: take its id from queued-jobs.", "unknown_job"
)
job_of_another: Final = partial(
    RefusedRequest, 401, "The job belongs to another consumer: use that consumer's URL and tokens."
)
bad_limit: Final = partial(
    RefusedRequest, 400, "limit must be a whole number from 0: leave it out for 25."
)
bad_page: Final = partial(
    RefusedRequest,
    400,
    "next must come from a Link header: leave it out to start at the first page.",
)
both_cursors: Final = partial(RefusedRequest, 400, "Send next or previous, not both.")
needless_timeout: Final = partial(
    RefusedRequest,
    400,
    "Only a request that takes a job may have IncrementalTimeout: leave it out.",
)
lease_lost: Final = partial(
    RefusedRequest, 409, "X-Broker-Lease-Token is not the lease of this job: stop working on it."
)
held_elsewhere: Final = partial(
    RefusedRequest, 409, "No job POST took this job: send its lease as X-Broker-Lease-Token."
)
overtaken: Final = partial(
    RefusedRequest,
    409,
    "Another request changed the job first, and this one changed nothing: GET the job.",
)
not_dead: Final = partial(
    RefusedRequest, 400, "Only a DEAD job can be queued again: this job is not DEAD."
)
not_deletable: Final = partial(
    RefusedRequest, 404, "There is no DEAD job of this id that has used up its retries."
)
wrong_requeue: Final = partial(
    RefusedRequest, 400, "Send the consumer's token as the form field requeue."
)
not_a_form: Final = partial(
    RefusedRequest, 415, "Send a form: Content-Type application/x-www-form-urlencoded."
)
precondition_missing: Final = partial(
    RefusedRequest,
    400,
    "The row exists: send its Last-Modified as If-Unmodified-Since to change it.",
)
precondition_failed: Final = partial(
    RefusedRequest, 412, "The row changed: GET it again, then send its new Last-Modified."
)
unreadable_schedule: Final = partial(
    RefusedRequest, 400, "X-Broker-Scheduled-For must be a time such as 2030-01-31T12:00:00Z."
)
empty_payload: Final = partial(
    RefusedRequest, 400, "The body is empty: send the message's payload."
)
without_metrics: Final = partial(
    RefusedRequest, 501, "Metrics are not installed: python -m pip install 'pulljobs[metrics]'."
)
unsigned: Final = partial(
    RefusedRequest,
    401,
    "Sign the request: X-Broker-Signature: t=<Unix time>,v1=<hex digest>.",
    "unsigned",
)
signed_long_ago: Final = partial(
    RefusedRequest,
    403,
    "The time in X-Broker-Signature is too far from the server's: set your clock.",
    "bad_time",
)
wrong_signature: Final = partial(
    RefusedRequest,
    403,
    "X-Broker-Signature does not sign this body with the shared secret: check both.",
    "wrong_signature",
)
not_json: Final = partial(RefusedRequest, 415, "Send JSON: Content-Type application/json.")
consumer_deleted: Final = partial(
    RefusedRequest, 410, "The consumer was deleted: stop pulling.", "consumer_deleted"
)


def too_large(limit: int, advice: str) -> RefusedRequest:
    return RefusedRequest(413, f"The body is above {limit} bytes: {advice}.", "body_too_large")


def malformed(problem: str) -> RefusedRequest:
    return RefusedRequest(400, f'{problem}: send JSON such as {{"NextState": "INFLIGHT"}}.')


def illegal(state: State, target: State) -> RefusedRequest:
    return RefusedRequest(400, f"A job that is {state} can't become {target} by a job POST.")


def not_taken(reason: Refusal) -> RefusedRequest:
    return RefusedRequest(409, NOT_TAKEN[reason], reason)


def bad_field(problem: str) -> RefusedRequest:
    return RefusedRequest(400, problem)


def has_jobs(count: str) -> RefusedRequest:
    return RefusedRequest(
        409,
        f"The consumer has {count} jobs that are queued or in flight: DELETE its queued-jobs, "
        "and wait until those in flight end.",
    )


def refused(status_code: int, error: Exception) -> RefusedRequest:
    """Refuse with the text of an error of the Python API, which says what to do."""
    return RefusedRequest(status_code, str(error))


def bad_body(problem: str) -> RefusedRequest:
    return RefusedRequest(400, f"{problem}: nothing was changed.", "bad_body")


def body_too_large(limit: int) -> RefusedRequest:
    return RefusedRequest(
        413, f"The body is above {limit} bytes: send less at a time.", "body_too_large"
    )


def above_limit(field: str, limit: float) -> RefusedRequest:
    return RefusedRequest(
        409, f"{field} is above {limit:g}: ask for less.", f"exceeded_max_{field}"
    )


def not_allowed(method: str) -> RefusedRequest:
    sentence = f"{method} is not allowed at this path: the Allow header names the methods that are."
    return RefusedRequest(405, sentence, "method_not_allowed")


def too_many_waiting(limit: int) -> RefusedRequest:
    return RefusedRequest(
        429,
        f"{limit} pulls wait for this consumer already: come again later.",
        "max_waiting",
        retry_after=A_WHILE,
    )


def too_many_threads(limit: int) -> RefusedRequest:
    return RefusedRequest(
        429,
        f"{limit} pulls hold a thread of this server already: pull with NoWait, or serve by ASGI.",
        "max_lingering_threads",
        retry_after=SOON,
    )


def not_ready(problem: str) -> RefusedRequest:
    return RefusedRequest(503, f"{problem}.", "not_ready", retry_after=SOON)


def too_many_lines(limit: int) -> RefusedRequest:
    return RefusedRequest(
        413, f"There are more than {limit} messages: send less at a time.", "max_batch"
    )


def as_text(error: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """Answer a refusal in plain text; return None for errors that Django handles.

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
    """Answer a refusal as application/problem+json; return None for errors that Django handles."""
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
    """Return the refusal that an error stands for: an unreachable database is one, too."""
    if isinstance(error, UNREACHABLE):
        logger.warning("The database failed a request: %s", error)
        return unreachable()
    return error if isinstance(error, APIException) else None


def sentence_of(refusal: APIException) -> str:
    """Return the sentence of a refusal, with advice where that of DRF has none."""
    if isinstance(refusal, MethodNotAllowed):
        return f"{refusal.detail} The Allow header names those that are."
    if isinstance(refusal, NotAuthenticated):
        return "Log in as a user of Django: by Basic authentication, a token or a session."
    return str(refusal.detail)


def headers_of(refusal: APIException) -> dict[str, str]:
    """Return the headers that DRF adds to a refusal."""
    headers = {}
    if (scheme := getattr(refusal, "auth_header", None)) is not None:
        headers["WWW-Authenticate"] = scheme
    if (seconds := getattr(refusal, "wait", None)) is not None:
        headers["Retry-After"] = str(math.ceil(seconds))
    return headers
