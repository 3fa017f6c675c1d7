"""Refusals of the API: exceptions with an HTTP status and a sentence that says what to do."""

import math
from functools import partial
from http import HTTPStatus
from typing import Final

from django.db import InterfaceError, OperationalError
from rest_framework.exceptions import APIException

SOON: Final = 1
"""Seconds after which clients repeat a request that failed for a moment."""
A_WHILE: Final = 5
"""Seconds after which clients repeat a pull that exceeded the limit of waiting pulls."""
ENDED_TRANSACTION: Final = {"25006", "25P03", "25P04"}
"""Codes of PostgreSQL for a read-only transaction, and for one that was idle or took too long."""


class RefusedRequest(APIException):
    """Refusal: an HTTP status, a sentence for people, and a code for programs.

    Without a code it has the name of the status. `retry_after` is in seconds, 0 for no advice.
    """

    def __init__(
        self, status_code: int, sentence: str, code: str | None = None, *, retry_after: float = 0
    ) -> None:
        super().__init__(sentence, code or HTTPStatus(status_code).name.lower())
        self.status_code = status_code
        if retry_after:
            self.wait = retry_after


unreachable: Final = partial(
    RefusedRequest,
    503,
    "The database can't be reached, or refuses writes: try again.",
    "unavailable",
    retry_after=SOON,
)
row_locked: Final = partial(
    RefusedRequest,
    503,
    "Another transaction keeps the row of the job locked: repeat the request.",
    "unavailable",
    retry_after=SOON,
)


def is_outage(error: Exception) -> bool:
    """Return True if the database is away or read-only, or ended a statement or transaction."""
    is_ended = getattr(error.__cause__, "sqlstate", None) in ENDED_TRANSACTION
    return is_ended or isinstance(error, OperationalError | InterfaceError)


no_channel: Final = partial(
    RefusedRequest, 404, "There is no such channel: PUT it first, or check its name in the URL."
)
no_consumer: Final = partial(
    RefusedRequest, 404, "The channel has no such consumer: check its name in the URL."
)
no_limit_group: Final = partial(
    RefusedRequest, 404, "There is no such limit group: PUT it first, or check its name in the URL."
)
has_members: Final = partial(
    RefusedRequest, 409, "The limit group has consumers: take them out of it first."
)
no_producer: Final = partial(
    RefusedRequest, 404, "There is no such producer: check its name in the URL."
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
bad_limit: Final = partial(
    RefusedRequest, 400, "limit must be a whole number from 0: leave it out for the default."
)
bad_page: Final = partial(
    RefusedRequest,
    400,
    "next must come from a Link header: leave it out to start at the first page.",
)
both_cursors: Final = partial(RefusedRequest, 400, "Send next or previous, not both.")
wrong_requeue: Final = partial(
    RefusedRequest, 400, "Send the consumer's token as the form field requeue."
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
not_json: Final = partial(RefusedRequest, 415, "Send JSON: Content-Type application/json.")
consumer_deleted: Final = partial(
    RefusedRequest, 410, "The consumer was deleted: stop pulling.", "consumer_deleted"
)


def too_large(limit: int, advice: str) -> RefusedRequest:
    return RefusedRequest(413, f"The body is above {limit} bytes: {advice}.", "body_too_large")


def not_a_form(alternative: str) -> RefusedRequest:
    return RefusedRequest(
        415, f"Send a form: Content-Type application/x-www-form-urlencoded{alternative}."
    )


def bad_field(problem: str) -> RefusedRequest:
    return RefusedRequest(400, problem)


def has_jobs(count: str) -> RefusedRequest:
    return RefusedRequest(
        409,
        f"The consumer has {count} jobs that are queued or in flight: DELETE its queued-jobs, "
        "and wait until those in flight end.",
    )


def refused(status_code: int, error: Exception) -> RefusedRequest:
    """Return a refusal with the text of an error of the Python API, which says what to do."""
    return RefusedRequest(status_code, str(error))


def bad_body(problem: str) -> RefusedRequest:
    return RefusedRequest(400, f"{problem}: nothing was changed.", "bad_body")


def above_limit(field: str, limit: float) -> RefusedRequest:
    return RefusedRequest(
        409, f"{field} is above {limit:g}: ask for less.", f"exceeded_max_{field}"
    )


def not_allowed(method: str) -> RefusedRequest:
    sentence = f"{method} is not allowed at this path: the Allow header names the methods that are."
    return RefusedRequest(405, sentence, "method_not_allowed")


def throttled(seconds: float) -> RefusedRequest:
    return RefusedRequest(
        429,
        "PULLJOBS['THROTTLES'] limits the requests of this caller: repeat this request in "
        f"{math.ceil(seconds)} s.",
        "throttled",
        retry_after=seconds,
    )


def too_many_waiting(limit: int) -> RefusedRequest:
    return RefusedRequest(
        429,
        f"max_waiting lets {limit} pulls of this consumer wait at once: come again later, or pull "
        "with NoWait.",
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
