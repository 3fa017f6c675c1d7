"""Every refusal of the API: its status and the sentence that says what to do.

Part A of the API tells it as plain text, part B as application/problem+json with a code.
"""

import logging
import math
from http import HTTPStatus
from typing import Any, Final

from django.db import InterfaceError, OperationalError
from django.http import HttpResponse, JsonResponse
from rest_framework.exceptions import APIException, MethodNotAllowed, NotAuthenticated
from rest_framework.views import set_rollback

from pulljobs.states import State
from pulljobs.storage import rows

logger = logging.getLogger("pulljobs.api")

TEXT = "text/plain; charset=utf-8"
PROBLEM: Final = "application/problem+json"
UNREACHABLE: Final = (OperationalError, InterfaceError)
SOON: Final = 1
"""Seconds after which to try again what failed for a moment."""
NOT_GIVEN: Final = {
    rows.Refusal.DELETED: "The consumer is deleted: restore it first.",
    rows.Refusal.PAUSED: "The consumer or its channel is paused: try again later.",
    rows.Refusal.BUSY_KEY: "A job of its key is in flight or comes before it: take that one first.",
    rows.Refusal.MAX_IN_FLIGHT: "The consumer holds as many jobs as it may: settle some first.",
}


class Refusal(APIException):
    """`code` says to programs what the sentence says to people; None: what the status is called."""

    def __init__(
        self, status_code: int, sentence: str, code: str | None = None, *, retry_after: int = 0
    ) -> None:
        super().__init__(sentence, code or HTTPStatus(status_code).name.lower())
        self.status_code = status_code
        if retry_after:
            self.wait = retry_after


def unreachable() -> Refusal:
    return Refusal(
        503, "The database can't be reached: try again.", "unavailable", retry_after=SOON
    )


def unknown_channel() -> Refusal:
    return Refusal(404, "There is no such channel: check its name in the URL.", "unknown_channel")


def wrong_channel_token() -> Refusal:
    return Refusal(
        403, "Send the channel's token as X-Broker-Channel-Token.", "wrong_channel_token"
    )


def unknown_consumer() -> Refusal:
    return Refusal(
        401, "The channel has no such consumer: check its name in the URL.", "unknown_consumer"
    )


def wrong_consumer_token() -> Refusal:
    return Refusal(
        403, "Send the consumer's token as X-Broker-Consumer-Token.", "wrong_consumer_token"
    )


def no_channel() -> Refusal:
    return Refusal(404, "There is no such channel: PUT it first, or check its name in the URL.")


def no_consumer() -> Refusal:
    return Refusal(404, "The channel has no such consumer: check its name in the URL.")


def no_producer() -> Refusal:
    return Refusal(404, "There is no such producer: check its name in the URL.")


def unknown_producer() -> Refusal:
    return Refusal(401, "Send the id of a producer that exists as X-Broker-Producer-ID.")


def wrong_producer_token() -> Refusal:
    return Refusal(403, "Send the producer's token as X-Broker-Producer-Token.")


def unknown_message() -> Refusal:
    return Refusal(404, "The channel has no such message: check its id in the URL.")


def unknown_path() -> Refusal:
    return Refusal(
        404, "There is nothing at this path: check it, and leave out a slash at its end."
    )


def push_consumer() -> Refusal:
    return Refusal(
        412, "Jobs are pushed to this consumer: make it a pull consumer first.", "push_consumer"
    )


def unknown_job() -> Refusal:
    return Refusal(404, "There is no such job: take its id from queued-jobs.", "unknown_job")


def job_of_another() -> Refusal:
    return Refusal(401, "The job belongs to another consumer: use that one's URL and tokens.")


def bad_limit() -> Refusal:
    return Refusal(400, "limit must be a whole number from 0: leave it out for 25.")


def bad_page() -> Refusal:
    return Refusal(400, "next must come from a Link header: leave it out to start at the head.")


def both_cursors() -> Refusal:
    return Refusal(400, "Send next or previous, not both.")


def too_large(limit: int, what: str) -> Refusal:
    return Refusal(413, f"The body is above {limit} bytes: {what}.", "body_too_large")


def malformed(problem: str) -> Refusal:
    return Refusal(400, f'{problem}: send JSON such as {{"NextState": "INFLIGHT"}}.')


def needless_timeout() -> Refusal:
    return Refusal(400, "IncrementalTimeout goes only with taking a job: leave it out.")


def illegal(state: State, target: State) -> Refusal:
    return Refusal(400, f"A job that is {state} can't become {target} by a job POST.")


def lease_lost() -> Refusal:
    return Refusal(409, "X-Broker-Lease-Token is not the lease of this job: stop working on it.")


def held_elsewhere() -> Refusal:
    return Refusal(409, "No job POST took this job: send its lease as X-Broker-Lease-Token.")


def overtaken() -> Refusal:
    return Refusal(409, "The job changed at the same moment: nothing was done, look at it again.")


def not_given(why: rows.Refusal) -> Refusal:
    return Refusal(409, NOT_GIVEN[why], why)


def not_dead() -> Refusal:
    return Refusal(400, "Only a DEAD job can be queued again: this one is not.")


def not_deletable() -> Refusal:
    return Refusal(404, "There is no such job that is DEAD with its retries used up.")


def wrong_requeue() -> Refusal:
    return Refusal(400, "Send the consumer's token as the form field requeue.")


def not_a_form() -> Refusal:
    return Refusal(415, "Send a form: Content-Type application/x-www-form-urlencoded.")


def bad_field(problem: str) -> Refusal:
    return Refusal(400, problem)


def precondition_missing() -> Refusal:
    return Refusal(400, "It exists: send its Last-Modified as If-Unmodified-Since to change it.")


def precondition_failed() -> Refusal:
    return Refusal(412, "It changed since: GET it again, then send its new Last-Modified.")


def has_jobs(count: str) -> Refusal:
    return Refusal(
        409,
        f"The consumer has {count} jobs that wait or are in flight: purge those that wait (DELETE "
        "its queued-jobs), and let those in flight end.",
    )


def unreadable_schedule() -> Refusal:
    return Refusal(400, "X-Broker-Scheduled-For must be a time such as 2030-01-31T12:00:00Z.")


def empty_payload() -> Refusal:
    return Refusal(400, "The body is empty: send the message's payload.")


def refused(status_code: int, error: Exception) -> Refusal:
    """What publishing would not take; it says what to do."""
    return Refusal(status_code, str(error))


def without_metrics() -> Refusal:
    return Refusal(501, "Metrics are not installed: python -m pip install 'pulljobs[metrics]'.")


def unsigned() -> Refusal:
    return Refusal(
        401, "Sign the request: X-Broker-Signature: t=<Unix time>,v1=<hex digest>.", "unsigned"
    )


def signed_long_ago() -> Refusal:
    return Refusal(
        403, "The time in X-Broker-Signature is too far from ours: set your clock.", "bad_time"
    )


def wrong_signature() -> Refusal:
    return Refusal(
        403, "X-Broker-Signature is not of this body by the shared secret.", "wrong_signature"
    )


def as_text(error: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """DRF's exception handler: one plain sentence. None leaves what is no refusal to Django."""
    refusal = refusal_of(error)
    if refusal is None:
        return None
    set_rollback()
    sentence = sentence_of(refusal)
    headers = headers_of(refusal)
    return HttpResponse(sentence, status=refusal.status_code, content_type=TEXT, headers=headers)


def as_problem(error: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """The same as application/problem+json, for part B."""
    refusal = refusal_of(error)
    if refusal is None:
        return None
    set_rollback()
    problem = {
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
    """A database that is away is a refusal, too."""
    if isinstance(error, UNREACHABLE):
        logger.warning("The database failed a request: %s", error)
        return unreachable()
    return error if isinstance(error, APIException) else None


def sentence_of(refusal: APIException) -> str:
    if isinstance(refusal, MethodNotAllowed):
        return f"{refusal.detail} The Allow header names those that are."
    if isinstance(refusal, NotAuthenticated):
        return "Log in as a user of Django: by Basic authentication, a token or a session."
    return str(refusal.detail)


def headers_of(refusal: APIException) -> dict[str, str]:
    """What DRF tells a caller beside the status."""
    headers = {}
    if (scheme := getattr(refusal, "auth_header", None)) is not None:
        headers["WWW-Authenticate"] = scheme
    if (seconds := getattr(refusal, "wait", None)) is not None:
        headers["Retry-After"] = str(math.ceil(seconds))
    return headers
