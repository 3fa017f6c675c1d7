"""Part B: what the routes of pulling with leases take and answer."""

from collections.abc import Mapping
from typing import Final

from pulljobs.api.leases import bodies
from pulljobs.api.openapi.operation import (
    ANYBODY,
    CHANNEL,
    CONSUMER,
    PART_B,
    PRODUCER,
    Operation,
    query,
)

OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("pull", "POST"): Operation(
        summary="Take jobs under a lease, now or as soon as there are some",
        part=PART_B,
        auth=CONSUMER,
        answer=bodies.Pulled,
        body={"application/json": bodies.Pull},
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
    ("ack", "POST"): Operation(
        summary="Settle jobs, each by itself, and perhaps pull more",
        part=PART_B,
        auth=CONSUMER,
        answer=bodies.Acked,
        body={"application/json": bodies.Ack},
        refusals=(400, 409, 410, 413),
    ),
    ("renew", "POST"): Operation(
        summary="Give jobs a full new lease from now",
        part=PART_B,
        auth=CONSUMER,
        answer=bodies.Renewed,
        body={"application/json": bodies.Renew},
        refusals=(400, 409, 413),
    ),
    ("info", "GET"): Operation(
        summary="How the consumer stands, and the limits that a client has to respect",
        part=PART_B,
        auth=CONSUMER,
        answer=bodies.Info,
        refusals=(410,),
    ),
    ("pause", "POST"): Operation(
        summary="Pause a consumer, or have it go on",
        part=PART_B,
        answer=bodies.Paused,
        body={"application/json": bodies.Pause},
        refusals=(400, 404, 413, 415),
    ),
    ("queued-jobs", "DELETE"): Operation(
        summary="Purge what is queued: DEAD, for the reason purged",
        part=PART_B,
        answer=bodies.Purged,
        refusals=(404,),
    ),
    ("broadcast-batch", "POST"): Operation(
        summary="Publish many messages, a JSON object a line",
        part=PART_B,
        auth=PRODUCER,
        answer=bodies.AcceptedLines,
        body={"application/x-ndjson": bodies.Line},
        refusals=(400, 413),
    ),
    ("lookup", "GET"): Operation(
        summary="Where a channel's consumers can pull",
        part=PART_B,
        auth=CHANNEL,
        answer=bodies.Found,
        parameters=(query("channel", "Its id."),),
    ),
    ("livez", "GET"): Operation(
        summary="Whether the process lives", part=PART_B, auth=ANYBODY, answer=bodies.Health
    ),
    ("readyz", "GET"): Operation(
        summary="Whether it can do its work", part=PART_B, auth=ANYBODY, answer=bodies.Health
    ),
}
