"""Operations of batches by route and method, for the OpenAPI document."""

from collections.abc import Mapping
from typing import Final

from pulljobs.api.openapi.operation import ApiOperation, query
from pulljobs.workflows.batches.api import bodies

BATCHES: Final = "batches"
JSON: Final = "application/json"

OPERATIONS: Final[Mapping[tuple[str, str], ApiOperation]] = {
    ("batches", "GET"): ApiOperation(
        summary="List batches with their counts, the newest first",
        protocol=BATCHES,
        answer=bodies.BatchesBody,
        parameters=(
            query("name", "Only batches of this name."),
            query("before", "Only batches before this id, as in the link Next."),
        ),
        refusals=(400,),
    ),
    ("batches", "POST"): ApiOperation(
        summary="Create a batch that is open until it is closed",
        protocol=BATCHES,
        status=201,
        answer=bodies.BatchBody,
        body={JSON: bodies.BatchFormBody},
        refusals=(400, 404, 409, 413, 415),
    ),
    ("batch", "GET"): ApiOperation(
        summary="Show a batch with its counts, its progress and dead members",
        protocol=BATCHES,
        answer=bodies.BatchDetailBody,
        refusals=(404,),
    ),
    ("batch-members", "POST"): ApiOperation(
        summary="Publish messages on a channel, whose jobs are members",
        protocol=BATCHES,
        answer=bodies.AddedMembersBody,
        body={JSON: bodies.MembersFormBody},
        refusals=(400, 404, 409, 413, 415),
    ),
    ("batch-close", "POST"): ApiOperation(
        summary="Close a batch: it completes once every member has ended",
        protocol=BATCHES,
        answer=bodies.BatchBody,
        refusals=(404, 415),
    ),
    ("batch-cancel", "POST"): ApiOperation(
        summary="Kill the queued members of a batch, which takes no members any more",
        protocol=BATCHES,
        answer=bodies.CancelledBatchBody,
        refusals=(404, 415),
    ),
    ("batch-redrive", "POST"): ApiOperation(
        summary="Queue the dead members of a batch again",
        protocol=BATCHES,
        answer=bodies.RedrivenBatchBody,
        refusals=(404, 415),
    ),
}
