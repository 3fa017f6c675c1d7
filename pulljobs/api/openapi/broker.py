"""Part A: what the broker protocol's routes take and answer, by route and method."""

from collections.abc import Mapping
from typing import Any, Final

from drf_spectacular.types import OpenApiTypes

from pulljobs.api.broker import bodies
from pulljobs.api.openapi.operation import (
    ANYBODY,
    CONSUMER,
    PRODUCER,
    Operation,
    answer_header,
    header,
    query,
)

FORM: Final = "application/x-www-form-urlencoded"
NUMBER: Final = {"type": "integer", "minimum": 0}
BYTES: Final = {"type": "string", "format": "binary", "minLength": 1}
CURSORS: Final = (
    query("next", "A cursor, from the link of that name; an unreadable one is ignored."),
    query("previous", "Likewise. Not both."),
)
STATUSES: Final = query("status", "A number; others are ignored. May be repeated.")
UNMODIFIED: Final = header(
    "If-Unmodified-Since", "The Last-Modified that you have seen, letter by letter."
)
MODIFIED: Final = answer_header("Last-Modified", "When it changed.", [200])
FENCE: Final = header(
    "X-Broker-Lease-Token",
    "Your lease: nothing happens under another. Without it you settle only what a job POST took.",
)
LEASE: Final = (
    answer_header("X-Broker-Lease-Token", "You took it: your lease.", [202], required=False),
    answer_header("X-Broker-Lease-Expires-At", "RFC 3339.", [202], required=False),
)
PUBLISHING: Final = (
    header("X-Broker-Message-ID", "Your id: a second one inside the window is 409."),
    header("X-Broker-Message-Priority", "A whole number, its sign ignored; unreadable: 0."),
    header("X-Broker-Key", "Jobs of one key run one at a time, if the consumer says so."),
    header(
        "X-Broker-Metadata-Headers",
        "Names of headers to keep, with commas; logins and tokens never.",
    ),
    header("X-Broker-Scheduled-For", "RFC 3339, two minutes ahead or more."),
    answer_header("Location", "Where the message is.", [201]),
)
STATE_COUNTS: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": "By channel, then by the number of the consumer's row.",
    "additionalProperties": {
        "type": "object",
        "additionalProperties": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["status", "count", "oldestItemTimestamp", "newestItemTimestamp"],
                "properties": {
                    "status": {"enum": [1001, 1002, 1003, 1004]},
                    "count": NUMBER,
                    "oldestItemTimestamp": {"type": ["string", "null"], "format": "date-time"},
                    "newestItemTimestamp": {"type": ["string", "null"], "format": "date-time"},
                    "Capped": {"const": True},
                },
            },
        },
    },
}


def listing(what: str, answer: Any = bodies.Listing, *more: Any, refusals: Any = ()) -> Operation:
    return Operation(
        summary=f"List {what}, newest first",
        answer=answer,
        parameters=(*CURSORS, *more),
        refusals=(400, *refusals),
    )


def shown(what: str, answer: Any) -> Operation:
    return Operation(
        summary=f"Show a {what}", answer=answer, parameters=(MODIFIED,), refusals=(404,)
    )


def put(what: str, answer: Any, form: Any, refusals: Any = ()) -> Operation:
    return Operation(
        summary=f"Make or change a {what}",
        answer=answer,
        body={FORM: form},
        parameters=(UNMODIFIED, MODIFIED),
        refusals=(400, 412, 413, 415, *refusals),
    )


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("producers", "GET"): listing("producers"),
    ("producer", "GET"): shown("producer", bodies.Producer),
    ("producer", "PUT"): put("producer", bodies.Producer, bodies.PartyForm),
    ("channels", "GET"): listing("channels"),
    ("channel", "GET"): shown("channel", bodies.Channel),
    ("channel", "PUT"): put("channel", bodies.Channel, bodies.PartyForm),
    ("consumers", "GET"): listing("the consumers of a channel", refusals=(404,)),
    ("consumer", "GET"): shown("consumer", bodies.Consumer),
    ("consumer", "PUT"): put("consumer", bodies.Consumer, bodies.ConsumerForm, (404,)),
    ("consumer", "DELETE"): Operation(
        summary="Delete a consumer that has no live jobs",
        status=204,
        parameters=(UNMODIFIED,),
        refusals=(400, 404, 409, 412),
    ),
    ("broadcast", "POST"): Operation(
        summary="Publish a message",
        auth=PRODUCER,
        status=201,
        body={"application/octet-stream": BYTES, "text/plain": BYTES},
        parameters=PUBLISHING,
        refusals=(400, 409, 412, 413),
    ),
    ("messages", "GET"): listing("messages", bodies.Listing, STATUSES, refusals=(404,)),
    ("message", "GET"): Operation(
        summary="Show a message and its jobs", answer=bodies.Message, refusals=(404,)
    ),
    ("messages-status", "GET"): Operation(
        summary="Count messages by status", answer=bodies.MessageCounts
    ),
    ("scheduled-messages", "GET"): listing(
        "scheduled messages", bodies.ScheduledListing, STATUSES, refusals=(404,)
    ),
    ("scheduled-message", "GET"): Operation(
        summary="Show a scheduled message", answer=bodies.ScheduledMessage, refusals=(404,)
    ),
    ("queued-jobs", "GET"): Operation(
        summary="List what waits, without taking it",
        auth=CONSUMER,
        answer=bodies.QueuedJobs,
        parameters=(
            query("limit", "25; above 100 is 100.", NUMBER),
            query("next", "From the Link header."),
            answer_header("Link", "The next page.", [200], required=False),
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
    ("job", "GET"): Operation(
        summary="Show a job", auth=CONSUMER, answer=bodies.Job, refusals=(404,)
    ),
    ("job", "POST"): Operation(
        summary="Take a job, or settle it",
        auth=CONSUMER,
        status=202,
        body={"application/json": bodies.Transition},
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
    ("job", "DELETE"): Operation(
        summary="Delete a DEAD job whose retries are used up", auth=CONSUMER, status=204
    ),
    ("requeue-dead-job", "POST"): Operation(
        summary="Queue a DEAD job again", auth=CONSUMER, status=202, refusals=(400,)
    ),
    ("dlq", "GET"): Operation(
        summary="List DEAD jobs",
        answer=bodies.DeadJobs,
        parameters=CURSORS,
        refusals=(400, 404),
    ),
    ("dlq", "POST"): Operation(
        summary="Queue all DEAD jobs again",
        auth=ANYBODY,
        status=202,
        body={FORM: bodies.RequeueForm},
        refusals=(400, 404, 413, 415),
    ),
    ("dlq", "DELETE"): Operation(
        summary="Delete all DEAD jobs whose retries are used up",
        auth=CONSUMER,
        answer=bodies.Deleted,
    ),
    ("app-status", "GET"): Operation(summary="What is registered", answer=bodies.AppStatus),
    ("job-status", "GET"): Operation(summary="Count jobs by state", answer=STATE_COUNTS),
    ("dlq-status", "GET"): Operation(summary="Count DEAD jobs", answer=bodies.DeadCounts),
    ("openapi", "GET"): Operation(summary="This document", auth=ANYBODY, answer={"type": "object"}),
    ("metrics", "GET"): Operation(
        summary="Prometheus",
        answer=OpenApiTypes.STR,
        media_type="text/plain; version=1.0.0; charset=utf-8; escaping=underscores",
        refusals=(501,),
    ),
}
