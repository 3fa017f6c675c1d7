"""Descriptions of the broker protocol for the OpenAPI document, by route and method."""

from collections.abc import Mapping
from typing import Any, Final

from pulljobs.api.broker import bodies
from pulljobs.api.openapi.operation import (
    ANYONE,
    CONSUMER,
    PRODUCER,
    ApiOperation,
    answer_header,
    header,
    query,
)

FORM: Final = "application/x-www-form-urlencoded"
JSON: Final = "application/json"
NUMBER: Final = {"type": "integer", "minimum": 0}
BYTES: Final = {"type": "string", "format": "binary", "minLength": 1}
CURSORS: Final = (
    query("next", "A cursor from the link of that name. An unreadable one is ignored."),
    query("previous", "A cursor for the page before. Not together with next."),
)
STATUSES: Final = query("status", "A number. Others are ignored. It may be repeated.")
UNMODIFIED: Final = header(
    "If-Unmodified-Since", "The Last-Modified of the row as you know it, character by character."
)
MODIFIED: Final = answer_header("Last-Modified", "Time of the last change.", [200])
FENCE: Final = header(
    "X-Broker-Lease-Token",
    "Lease token of the job: another one changes nothing. Without it you settle only jobs that "
    "a job POST took.",
)
LEASE: Final = (
    answer_header(
        "X-Broker-Lease-Token", "Lease token of the job that you took.", [202], required=False
    ),
    answer_header(
        "X-Broker-Lease-Expires-At", "End of the lease, by RFC 3339.", [202], required=False
    ),
)
PUBLISHING: Final = (
    header(
        "X-Broker-Message-ID", "Your id of the message: a duplicate in the dedupe window is 409."
    ),
    header("X-Broker-Message-Priority", "A whole number without its sign; 0 if it is unreadable."),
    header("X-Broker-Cost", "Tokens of a rate that each job takes; 1 by default."),
    header("X-Broker-Key", "Jobs of one key run one at a time, if the consumer is set so."),
    header(
        "X-Broker-Metadata-Headers",
        "Names of headers to keep, separated by commas. Logins and tokens are never kept.",
    ),
    header("X-Broker-Scheduled-For", "Time by RFC 3339, at least two minutes ahead."),
    answer_header("Location", "Path of the message.", [201]),
    answer_header(
        "X-Broker-Replaced-Jobs",
        "Ids of queued jobs that have this message now, in place of another, separated by commas.",
        [201],
        required=False,
    ),
)


def listing(
    rows: str, answer: Any = bodies.ListingBody, *more: Any, refusals: Any = ()
) -> ApiOperation:
    """Return the operation that lists `rows`, such as "producers". `more` are more parameters."""
    return ApiOperation(
        summary=f"List {rows}, newest first",
        answer=answer,
        parameters=(*CURSORS, *more),
        refusals=(400, *refusals),
    )


def show(kind: str, answer: Any) -> ApiOperation:
    """Return the operation that reads one row of a kind such as "channel"."""
    return ApiOperation(
        summary=f"Show a {kind}", answer=answer, parameters=(MODIFIED,), refusals=(404,)
    )


def put(kind: str, answer: Any, form: Any, refusals: Any = ()) -> ApiOperation:
    """Return the operation that creates or changes one row of a kind such as "channel"."""
    return ApiOperation(
        summary=f"Create or change a {kind}",
        answer=answer,
        body={FORM: form, JSON: form},
        parameters=(UNMODIFIED, MODIFIED),
        refusals=(400, 412, 413, 415, *refusals),
    )


OPERATIONS: Final[Mapping[tuple[str, str], ApiOperation]] = {
    ("producers", "GET"): listing("producers"),
    ("producer", "GET"): show("producer", bodies.ProducerBody),
    ("producer", "PUT"): put("producer", bodies.ProducerBody, bodies.RegistryFormBody),
    ("channels", "GET"): listing("channels"),
    ("channel", "GET"): show("channel", bodies.ChannelBody),
    ("channel", "PUT"): put("channel", bodies.ChannelBody, bodies.RegistryFormBody),
    ("consumers", "GET"): listing("the consumers of a channel", refusals=(404,)),
    ("consumer", "GET"): show("consumer", bodies.ConsumerBody),
    ("consumer", "PUT"): put("consumer", bodies.ConsumerBody, bodies.ConsumerFormBody, (404,)),
    ("consumer", "DELETE"): ApiOperation(
        summary="Delete a consumer that has no queued or running jobs",
        status=204,
        parameters=(UNMODIFIED,),
        refusals=(400, 404, 409, 412),
    ),
    ("weights", "GET"): ApiOperation(
        summary="List the keys of a consumer that have a weight, by key",
        answer=bodies.KeyWeightsBody,
        parameters=(query("after", "The key before the page."),),
        refusals=(404,),
    ),
    ("weights", "PUT"): ApiOperation(
        summary="Set the weight of a key",
        answer=bodies.KeyWeightBody,
        body={FORM: bodies.KeyWeightFormBody, JSON: bodies.KeyWeightFormBody},
        refusals=(400, 404, 413, 415),
    ),
    ("limit-groups", "GET"): ApiOperation(
        summary="List limit groups by name", answer=bodies.LimitGroupsBody
    ),
    ("limit-group", "GET"): ApiOperation(
        summary="Show a limit group", answer=bodies.LimitGroupBody, refusals=(404,)
    ),
    ("limit-group", "PUT"): ApiOperation(
        summary="Create or change a limit group",
        answer=bodies.LimitGroupBody,
        body={FORM: bodies.LimitsFormBody, JSON: bodies.LimitsFormBody},
        refusals=(400, 413, 415),
    ),
    ("limit-group", "DELETE"): ApiOperation(
        summary="Delete a limit group that has no consumers", status=204, refusals=(404, 409)
    ),
    ("broadcast", "POST"): ApiOperation(
        summary="Publish a message",
        auth=PRODUCER,
        status=201,
        body={"application/octet-stream": BYTES, "text/plain": BYTES},
        parameters=PUBLISHING,
        refusals=(400, 409, 412, 413),
    ),
    ("messages", "GET"): listing("messages", bodies.ListingBody, STATUSES, refusals=(404,)),
    ("message", "GET"): ApiOperation(
        summary="Show a message and its jobs", answer=bodies.MessageBody, refusals=(404,)
    ),
    ("messages-status", "GET"): ApiOperation(
        summary="Count messages by status", answer=bodies.MessageCountsBody
    ),
    ("scheduled-messages", "GET"): listing(
        "scheduled messages", bodies.ScheduledListingBody, STATUSES, refusals=(404,)
    ),
    ("scheduled-message", "GET"): ApiOperation(
        summary="Show a scheduled message", answer=bodies.ScheduledMessageBody, refusals=(404,)
    ),
    ("queued-jobs", "GET"): ApiOperation(
        summary="List queued jobs without taking them",
        auth=CONSUMER,
        answer=bodies.QueuedJobsBody,
        parameters=(
            query("limit", "25 by default, at most 100.", NUMBER),
            query("next", "From the Link header of the page before."),
            answer_header("Link", "Next page.", [200], required=False),
        ),
        refusals=(400,),
        links={
            "take": {
                "operationId": "post-job",
                "parameters": {"path.job": "$response.body#/Result/0/ID"},
                "requestBody": {"NextState": "INFLIGHT"},
            },
            "look": {
                "operationId": "get-job",
                "parameters": {"path.job": "$response.body#/Result/0/ID"},
            },
        },
    ),
    ("job", "GET"): ApiOperation(
        summary="Show a job", auth=CONSUMER, answer=bodies.JobBody, refusals=(404,)
    ),
    ("job", "POST"): ApiOperation(
        summary="Take a job, or settle it",
        auth=CONSUMER,
        status=202,
        body={"application/json": bodies.TransitionBody},
        parameters=(FENCE, *LEASE),
        refusals=(400, 409, 413),
        links={
            "deliver": {
                "operationId": "post-job",
                "parameters": {
                    "path.job": "$request.path.job",
                    "header.X-Broker-Lease-Token": "$response.header.X-Broker-Lease-Token",
                },
                "requestBody": {"NextState": "DELIVERED"},
            },
        },
    ),
    ("job", "DELETE"): ApiOperation(
        summary="Delete a DEAD job whose retries are used up", auth=CONSUMER, status=204
    ),
    ("requeue-dead-job", "POST"): ApiOperation(
        summary="Queue a DEAD job again", auth=CONSUMER, status=202, refusals=(400,)
    ),
    ("dlq", "GET"): ApiOperation(
        summary="List DEAD jobs",
        answer=bodies.DeadJobsBody,
        parameters=CURSORS,
        refusals=(400, 404),
    ),
    ("dlq", "POST"): ApiOperation(
        summary="Queue all DEAD jobs again",
        auth=ANYONE,
        status=202,
        body={FORM: bodies.RequeueFormBody},
        refusals=(400, 404, 413, 415),
    ),
    ("dlq", "DELETE"): ApiOperation(
        summary="Delete all DEAD jobs whose retries are used up",
        auth=CONSUMER,
        answer=bodies.DeletedBody,
    ),
    ("app-status", "GET"): ApiOperation(
        summary="List registered channels, producers and consumers", answer=bodies.AppStatusBody
    ),
    ("job-status", "GET"): ApiOperation(summary="Count jobs by state", answer=bodies.StateCounts),
    ("dlq-status", "GET"): ApiOperation(summary="Count DEAD jobs", answer=bodies.DeadCountsBody),
    ("openapi", "GET"): ApiOperation(
        summary="Show this document", auth=ANYONE, answer={"type": "object"}
    ),
    ("metrics", "GET"): ApiOperation(
        summary="Show metrics in the format of Prometheus",
        answer=str,
        media_type="text/plain; version=1.0.0; charset=utf-8; escaping=underscores",
        refusals=(501,),
    ),
}
