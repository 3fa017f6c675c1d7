"""Entries of the OpenAPI document for schedules, by name of the route and HTTP method."""

from collections.abc import Mapping
from typing import Final

from pulljobs.api.openapi.broker import MODIFIED, NUMBER, UNMODIFIED
from pulljobs.api.openapi.operation import ApiOperation, query
from pulljobs.schedules.api import bodies

SCHEDULES: Final = "schedules"
JSON: Final = "application/json"
CHANGING: Final = (400, 404, 409, 413, 415)

OPERATIONS: Final[Mapping[tuple[str, str], ApiOperation]] = {
    ("schedules", "GET"): ApiOperation(
        summary="List schedules by name, with their state and next slot",
        protocol=SCHEDULES,
        answer=bodies.SchedulesBody,
        parameters=(
            query("channel", "Only schedules of this channel."),
            query("after", "Only names after this one, as in the link Next."),
        ),
        refusals=(400,),
    ),
    ("schedule", "GET"): ApiOperation(
        summary="Show a schedule: its rule, its state and its next slots",
        protocol=SCHEDULES,
        answer=bodies.ScheduleBody,
        parameters=(MODIFIED,),
        refusals=(404,),
    ),
    ("schedule", "PUT"): ApiOperation(
        summary="Create a schedule, or replace its options",
        protocol=SCHEDULES,
        answer=bodies.ScheduleBody,
        body={JSON: bodies.ScheduleFormBody},
        parameters=(UNMODIFIED, MODIFIED),
        refusals=(400, 404, 409, 412, 413),
    ),
    ("schedule", "DELETE"): ApiOperation(
        summary="Delete a schedule; the records of its slots stay",
        protocol=SCHEDULES,
        status=204,
        parameters=(UNMODIFIED,),
        refusals=(400, 404, 412),
    ),
    ("schedule-pause", "POST"): ApiOperation(
        summary="Pause a schedule until a time, or until it is resumed",
        protocol=SCHEDULES,
        answer=bodies.ScheduleItemBody,
        body={JSON: bodies.SchedulePauseBody},
        refusals=CHANGING,
    ),
    ("schedule-resume", "POST"): ApiOperation(
        summary="End the pause of a schedule",
        protocol=SCHEDULES,
        answer=bodies.ScheduleItemBody,
        refusals=(404, 415),
    ),
    ("schedule-fire", "POST"): ApiOperation(
        summary="Publish the message of a schedule now, whatever its rule",
        protocol=SCHEDULES,
        answer=bodies.SlotBody,
        refusals=CHANGING,
    ),
    ("schedule-backfill", "POST"): ApiOperation(
        summary="Publish a message for each past slot of a window that did not fire",
        protocol=SCHEDULES,
        answer=bodies.BackfilledBody,
        body={JSON: bodies.BackfillBody},
        refusals=CHANGING,
    ),
    ("schedule-slots", "GET"): ApiOperation(
        summary="List the records of fired and skipped slots, the newest first",
        protocol=SCHEDULES,
        answer=bodies.SlotsBody,
        parameters=(
            query("limit", "100 by default, which is the most.", NUMBER),
            query("before", "Only slots before this time, as in the link Next."),
        ),
        refusals=(400, 404),
    ),
}
