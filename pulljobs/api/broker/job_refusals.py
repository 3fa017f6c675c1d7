"""Refusals of requests to the routes of one job."""

from functools import partial
from math import ceil
from typing import Final

from pulljobs.api.exceptions import RefusedRequest
from pulljobs.states import State
from pulljobs.storage.rows import NotYet, Refusal

NOT_YET: Final = {
    Refusal.RATE_LIMITED: "The rate of the consumer, its limit group or the key allows no job yet",
    Refusal.THROTTLED: "A handler or an endpoint has throttled the consumer or the key",
}
NOT_TAKEN: Final = {
    Refusal.DELETED: "The consumer is deleted: restore it first.",
    Refusal.PAUSED: "The consumer or its channel is paused: try again later.",
    Refusal.BUSY_KEY: (
        "The key of the job has as many jobs in flight as it may, or an earlier job waits: settle "
        "one of those in flight, or take the earlier job."
    ),
    Refusal.MAX_IN_FLIGHT: (
        "The consumer or its limit group holds as many jobs as it may: settle some first."
    ),
}
unknown_job: Final = partial(
    RefusedRequest, 404, "There is no such job: take its id from queued-jobs.", "unknown_job"
)
job_of_another: Final = partial(
    RefusedRequest, 401, "The job belongs to another consumer: use that consumer's URL and tokens."
)
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


def malformed(problem: str) -> RefusedRequest:
    return RefusedRequest(400, f'{problem}: send JSON such as {{"NextState": "INFLIGHT"}}.')


def illegal(state: State, target: State) -> RefusedRequest:
    return RefusedRequest(400, f"A job that is {state} can't become {target} by a job POST.")


def not_yet(refusal: NotYet) -> RefusedRequest:
    seconds = max(ceil(refusal.next_due.total_seconds()), 1)
    return RefusedRequest(
        429,
        f"{NOT_YET[refusal.reason]}: try again in {seconds} s.",
        refusal.reason,
        retry_after=seconds,
    )


def not_taken(reason: Refusal) -> RefusedRequest:
    return RefusedRequest(409, NOT_TAKEN[reason], reason)
