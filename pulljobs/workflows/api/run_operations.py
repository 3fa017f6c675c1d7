"""Operations of runs by route and method, for the OpenAPI document."""

from collections.abc import Mapping
from typing import Final

from drf_spectacular.utils import OpenApiParameter

from pulljobs.api.openapi.operation import ANYONE, ApiOperation, query
from pulljobs.workflows.api import run_bodies

WORKFLOWS: Final = "workflows"
JSON: Final = "application/json"
ANY_JSON: Final = {"description": "Payload of the signal: any JSON. Empty: null."}
DEDUPE: Final = query("dedupe_id", "The run gets only one signal with this id.")
TOKEN: Final = OpenApiParameter(
    "Pulljobs-Signal-Token", str, OpenApiParameter.HEADER, required=True,
    description="One-time token, from `workflows.create_signal_token`.",
)  # fmt: skip

OPERATIONS: Final[Mapping[tuple[str, str], ApiOperation]] = {
    ("runs", "GET"): ApiOperation(
        summary="Find the runs that a message started",
        protocol=WORKFLOWS,
        answer=run_bodies.FoundRunsBody,
        parameters=(
            query("channel", "Name of the channel."),
            query("message", "Id of the message, as in the Location of its broadcast."),
        ),
        refusals=(404,),
    ),
    ("run", "GET"): ApiOperation(
        summary="Show a run: its state, what it waits for, and its steps",
        protocol=WORKFLOWS,
        answer=run_bodies.RunBody,
        refusals=(404,),
    ),
    ("run-signal", "POST"): ApiOperation(
        summary="Send a signal to a run",
        protocol=WORKFLOWS,
        answer=run_bodies.SignalBody,
        body={JSON: ANY_JSON},
        parameters=(DEDUPE,),
        refusals=(400, 404, 409, 413, 415),
    ),
    ("signal", "POST"): ApiOperation(
        summary="Send the signal of a one-time token, without a login",
        protocol=WORKFLOWS,
        auth=ANYONE,
        answer=run_bodies.SignalBody,
        body={JSON: ANY_JSON},
        parameters=(TOKEN,),
        refusals=(400, 403, 404, 409, 413, 415),
    ),
}
