"""Every refusal of the API: its status and the sentence that says what to do, as plain text."""

from typing import Any

from django.http import HttpResponse
from rest_framework import status
from rest_framework.exceptions import APIException
from rest_framework.views import set_rollback

from pulljobs.states import State

TEXT = "text/plain; charset=utf-8"


class Refusal(APIException):
    def __init__(self, status_code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status_code = status_code


def unknown_channel() -> Refusal:
    return Refusal(404, "There is no such channel: check its name in the URL.")


def wrong_channel_token() -> Refusal:
    return Refusal(403, "Send the channel's token as X-Broker-Channel-Token.")


def unknown_consumer() -> Refusal:
    return Refusal(401, "The channel has no such consumer: check its name in the URL.")


def wrong_consumer_token() -> Refusal:
    return Refusal(403, "Send the consumer's token as X-Broker-Consumer-Token.")


def push_consumer() -> Refusal:
    return Refusal(412, "Jobs are pushed to this consumer: make it a pull consumer first.")


def unknown_job() -> Refusal:
    return Refusal(404, "There is no such job: take its id from queued-jobs.")


def job_of_another() -> Refusal:
    return Refusal(401, "The job belongs to another consumer: use that one's URL and tokens.")


def bad_limit() -> Refusal:
    return Refusal(400, "limit must be a whole number from 0: leave it out for 25.")


def bad_page() -> Refusal:
    return Refusal(400, "next must come from a Link header: leave it out to start at the head.")


def too_large(limit: int) -> Refusal:
    return Refusal(413, f"The body is above {limit} bytes: send NextState and nothing else.")


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


def paused() -> Refusal:
    return Refusal(409, "The consumer or its channel is paused: try again later.")


def as_text(error: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """DRF's exception handler: one plain sentence. None leaves what is no refusal to Django."""
    if not isinstance(error, APIException):
        return None
    set_rollback()
    sentence = str(error.detail)
    if error.status_code == status.HTTP_405_METHOD_NOT_ALLOWED:
        sentence = f"{sentence} The Allow header names those that are."
    return HttpResponse(sentence, status=error.status_code, content_type=TEXT)
