"""Conversion of batches to bodies of answers, and of bodies of requests to messages."""

import base64
import binascii
from datetime import datetime, timedelta
from typing import Any

from pulljobs import ids
from pulljobs.api import exceptions
from pulljobs.api.bodies import render_time
from pulljobs.engine.validation import BYTES, TEXT, Draft
from pulljobs.workflows.batches import rendering
from pulljobs.workflows.batches.api.bodies import (
    BatchBody,
    BatchMessageBody,
    CallbackBody,
    DeadMemberBody,
    MemberBody,
)
from pulljobs.workflows.batches.callbacks import Callback
from pulljobs.workflows.batches.reading import BatchView, DeadMember


def render_batch(view: BatchView) -> BatchBody:
    """Return the body of an answer about a batch."""
    return {
        "ID": rendering.text_id(view),
        "Name": view.name,
        "State": view.state,
        "Round": view.round,
        "Progress": view.progress,
        "Members": view.members,
        "Live": view.live,
        "Delivered": view.delivered,
        "Dead": view.dead,
        "Redriven": view.redriven,
        "Parent": None if view.parent_id is None else ids.encode(view.parent_id),
        "CreatedAt": render_time(view.created_at),
        "ClosedAt": _time(view.closed_at),
        "CancelledAt": _time(view.cancelled_at),
        "CompletedAt": _time(view.completed_at),
        "ExpectedAt": _time(view.expected_at),
        "Error": view.error,
    }


def render_dead(member: DeadMember) -> DeadMemberBody:
    """Return the body of an answer about a dead member of a batch."""
    return {
        "JobID": ids.encode(member.job_id),
        "Channel": member.channel,
        "Consumer": member.consumer,
        "Reason": member.reason,
        "Error": member.error,
    }


def read_member(body: MemberBody) -> Draft:
    """Return the message that a request adds to a batch. Answer 400 for a wrong payload."""
    seconds = body.get("DelaySeconds")
    return Draft(
        **_message(body),
        message_id=body.get("MessageID"),
        delay=None if seconds is None else timedelta(seconds=seconds),
    )


def read_callback(body: CallbackBody | None) -> Callback | None:
    """Return a callback that a request gives, or None. Answer 400 for a wrong payload."""
    return None if body is None else Callback(body["Channel"], **_message(body))


def _message(body: BatchMessageBody) -> dict[str, Any]:
    payload, default = _read_payload(body)
    return {
        "payload": payload,
        "content_type": body.get("ContentType") or default,
        "headers": body.get("Headers") or {},
        "key": body.get("Key"),
        "priority": body.get("Priority") or 0,
        "cost": body.get("Cost") or 1,
    }


def _read_payload(body: BatchMessageBody) -> tuple[bytes | str, str]:
    text, encoded = body.get("Payload"), body.get("PayloadBase64")
    if text is not None and encoded is not None:
        raise exceptions.bad_body("Payload and PayloadBase64 must not both be given")
    if encoded is None:
        return text or "", TEXT
    try:
        return base64.b64decode(encoded, validate=True), BYTES
    except (binascii.Error, ValueError) as error:
        raise exceptions.bad_body("PayloadBase64 must be base64") from error


def _time(at: datetime | None) -> str | None:
    return None if at is None else render_time(at)
