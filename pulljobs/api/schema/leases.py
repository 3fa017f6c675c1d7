"""Part B: what the routes of pulling with leases take and answer."""

from collections.abc import Mapping
from typing import Final

from pulljobs.api.schema import pull_bodies
from pulljobs.api.schema.operation import CONSUMER, PART_B, Operation

OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("pull", "POST"): Operation(
        summary="Take jobs under a lease, now or as soon as there are some",
        part=PART_B,
        auth=CONSUMER,
        answer=pull_bodies.Pulled,
        body={"application/json": pull_bodies.Pull},
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
        answer=pull_bodies.Acked,
        body={"application/json": pull_bodies.Ack},
        refusals=(400, 409, 410, 413),
    ),
    ("renew", "POST"): Operation(
        summary="Give jobs a full new lease from now",
        part=PART_B,
        auth=CONSUMER,
        answer=pull_bodies.Renewed,
        body={"application/json": pull_bodies.Renew},
        refusals=(400, 409, 413),
    ),
}
