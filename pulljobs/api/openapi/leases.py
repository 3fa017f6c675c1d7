"""Descriptions of the lease protocol for the OpenAPI document, by route and method."""

from collections.abc import Mapping
from typing import Final

from pulljobs.api.leases import bodies
from pulljobs.api.openapi import LEASES
from pulljobs.api.openapi.operation import (
    ANYONE,
    CHANNEL,
    CONSUMER,
    PRODUCER,
    ApiOperation,
    query,
)

OPERATIONS: Final[Mapping[tuple[str, str], ApiOperation]] = {
    ("pull", "POST"): ApiOperation(
        summary="Pull jobs under a lease, at once or as soon as there are some",
        protocol=LEASES,
        auth=CONSUMER,
        answer=bodies.PulledBody,
        body={"application/json": bodies.PullBody},
        refusals=(400, 409, 410, 413),
        links={
            "ack": {
                "operationId": "post-ack",
                "requestBody": {
                    "Results": [
                        {
                            "ID": "$response.body#/Result/0/ID",
                            "LeaseToken": "$response.body#/Result/0/LeaseToken",
                            "Outcome": "DELIVERED",
                        }
                    ]
                },
            },
        },
    ),
    ("ack", "POST"): ApiOperation(
        summary="Settle jobs, each by itself, and optionally pull more",
        protocol=LEASES,
        auth=CONSUMER,
        answer=bodies.AckedBody,
        body={"application/json": bodies.AckBody},
        refusals=(400, 409, 410, 413),
    ),
    ("renew", "POST"): ApiOperation(
        summary="Renew leases in full from now",
        protocol=LEASES,
        auth=CONSUMER,
        answer=bodies.RenewedBody,
        body={"application/json": bodies.RenewBody},
        refusals=(400, 409, 413),
    ),
    ("info", "GET"): ApiOperation(
        summary="Show the counts of a consumer and the limits of its clients",
        protocol=LEASES,
        auth=CONSUMER,
        answer=bodies.InfoBody,
        refusals=(410,),
    ),
    ("pause", "POST"): ApiOperation(
        summary="Pause a consumer, or end its pause",
        protocol=LEASES,
        answer=bodies.PausedBody,
        body={"application/json": bodies.PauseBody},
        refusals=(400, 404, 413, 415),
    ),
    ("queued-jobs", "DELETE"): ApiOperation(
        summary="Purge queued jobs: they become DEAD with the reason purged",
        protocol=LEASES,
        answer=bodies.PurgedBody,
        refusals=(404,),
    ),
    ("broadcast-batch", "POST"): ApiOperation(
        summary="Publish many messages, one JSON object a line",
        protocol=LEASES,
        auth=PRODUCER,
        answer=bodies.AcceptedLinesBody,
        body={"application/x-ndjson": bodies.LineBody},
        refusals=(400, 413),
    ),
    ("lookup", "GET"): ApiOperation(
        summary="List a channel's consumers and the servers that they can pull from",
        protocol=LEASES,
        auth=CHANNEL,
        answer=bodies.LookupBody,
        parameters=(query("channel", "Id of the channel."),),
    ),
    ("livez", "GET"): ApiOperation(
        summary="Answer while the process lives",
        protocol=LEASES,
        auth=ANYONE,
        answer=bodies.HealthBody,
    ),
    ("readyz", "GET"): ApiOperation(
        summary="Answer 200 if the process can do its work",
        protocol=LEASES,
        auth=ANYONE,
        answer=bodies.HealthBody,
    ),
}
