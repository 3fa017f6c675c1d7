"""Conversion of rows into JSON bodies, and of the body of a PUT into arguments of `create`."""

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal, cast

from pulljobs import ids
from pulljobs.api import exceptions
from pulljobs.api.authentication import find_row
from pulljobs.api.bodies import parse_time, render_payload, render_time
from pulljobs.models import Producer
from pulljobs.schedules import reading
from pulljobs.schedules.api.bodies import (
    ScheduleBody,
    ScheduleFormBody,
    ScheduleItemBody,
    SlotBody,
)
from pulljobs.schedules.definitions import defaults
from pulljobs.schedules.models import Missed, Overlap, Schedule, Slot

OPTIONS: Final = {
    "Channel": "channel",
    "Cron": "cron",
    "Timezone": "timezone",
    "Missed": "missed",
    "MissedBound": "missed_bound",
    "Overlap": "overlap",
    "ContentType": "content_type",
    "Headers": "headers",
    "Key": "key",
    "Priority": "priority",
    "Cost": "cost",
}
TIMES: Final = {"StartsAt": "starts_at", "EndsAt": "ends_at"}
DURATIONS: Final = {
    "EverySeconds": "every",
    "JitterSeconds": "jitter",
    "MisfireGraceSeconds": "misfire_grace",
}


def read_options(form: ScheduleFormBody) -> dict[str, Any]:
    """Return all options of `create` from a body. Answer 400 for a wrong payload or producer.

    An absent option has its default, because a PUT replaces all options of an existing schedule.
    """
    given: Mapping[str, Any] = cast("Mapping[str, Any]", form)
    options = {option: given[field] for field, option in OPTIONS.items() if field in given}
    options |= {
        option: parse_time(given[field]) for field, option in TIMES.items() if field in given
    }
    options |= {
        option: timedelta(seconds=given[field])
        for field, option in DURATIONS.items()
        if field in given
    }
    if (name := form.get("Producer")) is not None:
        options["producer"] = _find_producer(name)
    return {**defaults(), **options, "payload": _read_payload(form)}


def _find_producer(name: str) -> Producer:
    producer = find_row(Producer, name)
    if producer is None:
        raise exceptions.bad_body(f"Producer is {name!r}, which does not exist")
    return producer


def _read_payload(form: ScheduleFormBody) -> bytes | str:
    text, encoded = form.get("Payload"), form.get("PayloadBase64")
    if text is not None and encoded is not None:
        raise exceptions.bad_body("Payload and PayloadBase64 must not both be given")
    if encoded is None:
        return text or ""
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise exceptions.bad_body("PayloadBase64 must be base64") from error


def render_item(row: Schedule, now: datetime) -> ScheduleItemBody:
    return {
        "Name": row.name,
        "Channel": row.channel_name,
        "Rule": row.rule.describe(),
        "State": cast(
            'Literal["active", "paused", "refused", "ended"]', reading.state_of(row, now)
        ),
        "PausedUntil": _render(row.paused_until) if row.is_paused(now) else None,
        "NextSlot": _render(row.next_slot),
        "LastSlot": _render(row.last_slot),
        "LastReason": row.last_reason,
        "LastLateSeconds": row.last_late_seconds,
        "Error": row.error or row.rule.problem,
    }


def render_schedule(row: Schedule, now: datetime, *, with_message: bool) -> ScheduleBody:
    """Render a schedule. Without `with_message` the body lacks payload and headers."""
    grace = row.misfire_grace
    body: ScheduleBody = {
        **render_item(row, now),  # type: ignore[typeddict-item]  # it has none of the others
        "Cron": row.cron,
        "EverySeconds": None if row.every is None else row.every.total_seconds(),
        "Timezone": row.timezone,
        "StartsAt": _render(row.starts_at),
        "EndsAt": _render(row.ends_at),
        "JitterSeconds": row.jitter.total_seconds(),
        "Missed": Missed(row.missed),
        "MissedBound": row.missed_bound,
        "MisfireGraceSeconds": None if grace is None else grace.total_seconds(),
        "Overlap": Overlap(row.overlap),
        "ContentType": row.content_type,
        "Key": row.key,
        "Priority": row.priority,
        "Cost": row.cost,
        "Producer": None if row.producer is None else row.producer.name,
        "IsDeclared": row.is_declared,
        "ChangedAt": render_time(row.changed_at),
        "Upcoming": [
            {"Slot": slot.utc, "Local": slot.local, "Change": slot.change}
            for slot in reading.upcoming(row)
        ],
    }
    if with_message:
        body["Headers"] = row.headers
        body["Payload"], encoding = render_payload(bytes(row.payload))
        if encoding is not None:
            body["PayloadEncoding"] = encoding
    return body


def render_slot(slot: Slot) -> SlotBody:
    return {
        "Slot": render_time(slot.slot_at),
        "Reason": slot.reason,
        "LateSeconds": slot.late_seconds,
        "MessageID": None if slot.message_id is None else ids.encode(slot.message_id),
        "Error": slot.error,
    }


def _render(time: datetime | None) -> str | None:
    return None if time is None else render_time(time)
